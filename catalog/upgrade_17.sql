-- What makes a catalog of version 16 one of version 17: synchronous_commit has an effect. Up to
-- version 16 every subscription waited for the disk, with the stored value off too.

UPDATE pg_subscription SET subsynccommit = 'on' WHERE subsynccommit = 'off';
