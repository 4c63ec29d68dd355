-- What makes a catalog of version 10 one of version 11: the other table that has a subscribed
-- table's name on the publisher.

ALTER TABLE pg_subscription_rel ADD COLUMN other_relid INTEGER;
