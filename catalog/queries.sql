-- Every statement of catalog/store_sqlite.py, by name.

-- name: next_oid
UPDATE object_id SET next_oid = next_oid + 1 RETURNING next_oid - 1

-- name: subscriptions
SELECT * FROM pg_subscription ORDER BY oid

-- name: subscription
SELECT * FROM pg_subscription WHERE oid = :oid

-- name: subscription_by_name
SELECT * FROM pg_subscription WHERE subname = :subname

-- name: insert_subscription
INSERT INTO pg_subscription VALUES (
    :oid, :subdbid, :subskiplsn, :subname, :subowner, :subenabled, :subbinary, :substream,
    :subtwophasestate, :subdisableonerr, :subpasswordrequired, :subrunasowner, :subfailover,
    :subconninfo, :subslotname, :subsynccommit, :subpublications, :suborigin, :subuuid,
    :subcreate, :create_slot, :sync_slot, :passfile, :password_env, :generation, :sysid,
    :timeline, :max_flush_lsn, :tables, :datoid, :password_command, :password_command_ttl,
    :refresh)

-- name: update_subscription
UPDATE pg_subscription SET
    subskiplsn = :subskiplsn, subname = :subname, subowner = :subowner,
    subenabled = :subenabled, subbinary = :subbinary, substream = :substream,
    subtwophasestate = :subtwophasestate, subdisableonerr = :subdisableonerr,
    subpasswordrequired = :subpasswordrequired, subrunasowner = :subrunasowner,
    subfailover = :subfailover, subconninfo = :subconninfo, subslotname = :subslotname,
    subsynccommit = :subsynccommit, subpublications = :subpublications, suborigin = :suborigin,
    subuuid = :subuuid, subcreate = :subcreate, create_slot = :create_slot,
    sync_slot = :sync_slot, passfile = :passfile, password_env = :password_env,
    generation = :generation, sysid = :sysid, timeline = :timeline,
    max_flush_lsn = :max_flush_lsn, tables = :tables, datoid = :datoid,
    password_command = :password_command, password_command_ttl = :password_command_ttl,
    refresh = :refresh
WHERE oid = :oid

-- name: delete_subscription
DELETE FROM pg_subscription WHERE oid = :oid

-- name: insert_former_owner
INSERT OR IGNORE INTO former_owner SELECT subuuid FROM pg_subscription WHERE oid = :oid

-- name: former_owners
SELECT subuuid FROM former_owner

-- name: forget_former_owner
DELETE FROM former_owner WHERE subuuid = :subuuid

-- name: next_generation
UPDATE pg_subscription SET generation = generation + 1 WHERE oid = :oid RETURNING generation

-- name: lake_relation
SELECT r.oid FROM lake_relation r
WHERE r.lake_schema = :lake_schema AND r.lake_table = :lake_table
  AND NOT EXISTS (
    SELECT 1 FROM pg_subscription_rel s WHERE s.srrelid = r.oid AND s.srsubid = :srsubid)
ORDER BY r.oid LIMIT 1

-- name: insert_lake_relation
INSERT INTO lake_relation VALUES (:oid, :lake_schema, :lake_table)

-- name: unused_lake_relations
SELECT * FROM lake_relation WHERE oid NOT IN (SELECT srrelid FROM pg_subscription_rel)

-- name: forget_lake_relation
DELETE FROM lake_relation
WHERE oid = :oid AND oid NOT IN (SELECT srrelid FROM pg_subscription_rel)

-- name: rels
SELECT * FROM pg_subscription_rel WHERE srsubid = :srsubid ORDER BY srrelid

-- name: rel
SELECT * FROM pg_subscription_rel WHERE srsubid = :srsubid AND srrelid = :srrelid

-- name: insert_rel
INSERT INTO pg_subscription_rel VALUES (
    :srsubid, :srrelid, :srsubstate, :srsublsn, :nspname, :relname, :lake_schema, :lake_table,
    :epoch, :attempt, :base_snapshot, :floor, :lake_lsn, :copied, :fingerprint, :remote_relid,
    :recopy, :other_relid, :suspend_time, :suspend_sqlstate, :suspend_error, :suspend_lsn,
    :resuming, :former_names)

-- name: update_rel
UPDATE pg_subscription_rel SET
    nspname = :nspname, relname = :relname, lake_schema = :lake_schema,
    lake_table = :lake_table, epoch = :epoch, attempt = :attempt,
    base_snapshot = :base_snapshot, floor = :floor, lake_lsn = :lake_lsn, copied = :copied,
    fingerprint = :fingerprint, remote_relid = :remote_relid, recopy = :recopy,
    other_relid = :other_relid, suspend_time = :suspend_time,
    suspend_sqlstate = :suspend_sqlstate, suspend_error = :suspend_error,
    suspend_lsn = :suspend_lsn, resuming = :resuming,
    former_names = :former_names
WHERE srsubid = :srsubid AND srrelid = :srrelid

-- name: set_rel_state
UPDATE pg_subscription_rel SET srsubstate = :srsubstate, srsublsn = :srsublsn
WHERE srsubid = :srsubid AND srrelid = :srrelid

-- name: delete_rel
DELETE FROM pg_subscription_rel WHERE srsubid = :srsubid AND srrelid = :srrelid

-- name: origins
SELECT * FROM pg_replication_origin ORDER BY roident

-- name: origin_by_name
SELECT * FROM pg_replication_origin WHERE roname = :roname

-- name: free_roident
SELECT min(candidate) FROM (
    SELECT 1 AS candidate UNION ALL SELECT roident + 1 FROM pg_replication_origin)
WHERE candidate NOT IN (SELECT roident FROM pg_replication_origin)

-- name: insert_origin
INSERT INTO pg_replication_origin VALUES (:roident, :roname, :remote_lsn, :local_lsn)

-- name: update_origin
UPDATE pg_replication_origin SET remote_lsn = :remote_lsn, local_lsn = :local_lsn
WHERE roname = :roname

-- name: delete_origin
DELETE FROM pg_replication_origin WHERE roname = :roname

-- name: put_in_flight
INSERT OR REPLACE INTO in_flight VALUES (:subid, :relid, :lsn)

-- name: in_flight
SELECT relid, lsn FROM in_flight WHERE subid = :subid ORDER BY relid

-- name: clear_in_flight
DELETE FROM in_flight WHERE subid = :subid AND relid = :relid AND lsn <= :lsn

-- name: put_table_rename
INSERT OR REPLACE INTO table_rename VALUES (
    :subid, :relid, :nspname, :relname, :lake_schema, :lake_table, :noted, :lsn)

-- name: table_renames
SELECT * FROM table_rename WHERE subid = :subid ORDER BY relid

-- name: forget_table_rename
DELETE FROM table_rename WHERE subid = :subid AND relid = :relid

-- name: name_lake_relation
UPDATE lake_relation SET lake_schema = :lake_schema, lake_table = :lake_table WHERE oid = :oid

-- name: name_expired_files
UPDATE expired_files SET lake_schema = :lake_schema, lake_table = :lake_table
WHERE subid = :subid AND lake_schema = :old_schema AND lake_table = :old_table

-- name: copy_lake_durable
INSERT OR REPLACE INTO lake_durable
SELECT :lake_schema, :lake_table, metadata_location FROM lake_durable
WHERE lake_schema = :old_schema AND lake_table = :old_table

-- name: forget_former_lake_durable
DELETE FROM lake_durable WHERE lake_schema = :lake_schema AND lake_table = :lake_table

-- name: lake_table_is_taken
SELECT 1 FROM pg_subscription_rel
WHERE lake_schema = :lake_schema AND lake_table = :lake_table
    AND (srsubid, srrelid) <> (:subid, :relid)
LIMIT 1

-- name: put_lake_durable
INSERT OR REPLACE INTO lake_durable VALUES (:lake_schema, :lake_table, :metadata_location)

-- name: lake_durable
SELECT * FROM lake_durable

-- name: forget_lake_durable
DELETE FROM lake_durable
WHERE lake_schema = :lake_schema AND lake_table = :lake_table
    AND metadata_location = :metadata_location
    AND NOT EXISTS (
        SELECT 1 FROM table_rename r
        WHERE r.lake_schema = lake_durable.lake_schema AND r.lake_table = lake_durable.lake_table)

-- name: put_spark_session
INSERT OR REPLACE INTO spark_session VALUES (:subid, :relid, :generation, :user_id, :session_id)

-- name: spark_sessions
SELECT user_id, session_id FROM spark_session
WHERE subid = :subid AND relid = :relid ORDER BY generation, session_id

-- name: all_spark_sessions
SELECT subid, relid, generation, user_id, session_id FROM spark_session
ORDER BY subid, relid, generation, session_id

-- name: forget_spark_sessions
DELETE FROM spark_session
WHERE subid = :subid AND relid = :relid AND generation <= :generation_max

-- name: forget_spark_session
DELETE FROM spark_session WHERE session_id = :session_id AND user_id = :user_id

-- name: put_idle_spark_session
INSERT OR REPLACE INTO idle_spark_session VALUES (:user_id, :session_id, :since)

-- name: idle_spark_session
SELECT user_id, session_id FROM idle_spark_session
WHERE since >= :since AND since < :before ORDER BY since DESC LIMIT 1

-- name: forget_idle_spark_session
DELETE FROM idle_spark_session WHERE session_id = :session_id AND user_id = :user_id

-- name: forget_idle_spark_sessions
DELETE FROM idle_spark_session

-- name: put_leaked_slot
INSERT OR REPLACE INTO leaked_slot
VALUES (:slot_name, :conninfo, :sysid, :datoid, :subname, :passfile, :reason)

-- name: leaked_slots
SELECT * FROM leaked_slot ORDER BY subname, slot_name

-- name: forget_leaked_slot
DELETE FROM leaked_slot
WHERE slot_name = :slot_name AND sysid = :sysid AND conninfo = :conninfo

-- name: forget_leaked_slot_of_server
DELETE FROM leaked_slot
WHERE slot_name = :slot_name AND (
    sysid = :sysid AND sysid <> '' OR '' IN (sysid, :sysid) AND conninfo = :conninfo)

-- name: put_leaked_branch
INSERT INTO leaked_branch
VALUES (:lake_schema, :lake_table, :subuuid, :subname, :since, :reason)
ON CONFLICT (lake_schema, lake_table, subuuid)
DO UPDATE SET since = max(since, excluded.since), reason = excluded.reason

-- name: leaked_branches
SELECT * FROM leaked_branch ORDER BY lake_schema, lake_table, subname

-- name: forget_leaked_branch
DELETE FROM leaked_branch
WHERE lake_schema = :lake_schema AND lake_table = :lake_table AND subuuid = :subuuid
    AND since = :since

-- name: put_last_error
INSERT OR REPLACE INTO last_error
VALUES (:subid, :relid, :since, :sqlstate, :message, :detail, :hint, :failures, :next_attempt)

-- name: put_next_attempt
UPDATE last_error SET next_attempt = :next_attempt WHERE subid = :subid AND relid = :relid

-- name: last_errors
SELECT * FROM last_error ORDER BY subid, relid

-- name: forget_last_error
DELETE FROM last_error WHERE subid = :subid AND relid = :relid

-- name: put_transaction_at_fault
INSERT OR REPLACE INTO transaction_at_fault
SELECT oid, :finish_lsn, :sqlstate, :nspname, :relname FROM pg_subscription WHERE oid = :subid

-- name: transaction_at_fault
SELECT * FROM transaction_at_fault WHERE subid = :subid

-- name: forget_transaction_at_fault
DELETE FROM transaction_at_fault WHERE subid = :subid

-- name: forget_transactions_at_fault
DELETE FROM transaction_at_fault

-- name: subscription_stats
SELECT * FROM subscription_stats WHERE subid = :subid

-- name: add_subscription_stats
INSERT INTO subscription_stats
SELECT oid, :apply_error_count, :sync_error_count, :confl_insert_exists,
    :confl_update_origin_differs, :confl_update_exists, :confl_update_missing,
    :confl_delete_origin_differs, :confl_delete_missing, :confl_multiple_unique_conflicts, NULL,
    :suspension_count, :schema_change_count, :column_add_count, :column_rename_count,
    :column_retype_count, :column_leave_count
FROM pg_subscription WHERE oid = :subid
ON CONFLICT (subid) DO UPDATE SET
    apply_error_count = apply_error_count + excluded.apply_error_count,
    sync_error_count = sync_error_count + excluded.sync_error_count,
    confl_insert_exists = confl_insert_exists + excluded.confl_insert_exists,
    confl_update_origin_differs =
        confl_update_origin_differs + excluded.confl_update_origin_differs,
    confl_update_exists = confl_update_exists + excluded.confl_update_exists,
    confl_update_missing = confl_update_missing + excluded.confl_update_missing,
    confl_delete_origin_differs =
        confl_delete_origin_differs + excluded.confl_delete_origin_differs,
    confl_delete_missing = confl_delete_missing + excluded.confl_delete_missing,
    confl_multiple_unique_conflicts =
        confl_multiple_unique_conflicts + excluded.confl_multiple_unique_conflicts,
    suspension_count = suspension_count + excluded.suspension_count,
    schema_change_count = schema_change_count + excluded.schema_change_count,
    column_add_count = column_add_count + excluded.column_add_count,
    column_rename_count = column_rename_count + excluded.column_rename_count,
    column_retype_count = column_retype_count + excluded.column_retype_count,
    column_leave_count = column_leave_count + excluded.column_leave_count

-- name: reset_subscription_stats
INSERT OR REPLACE INTO subscription_stats
SELECT oid, 0, 0, 0, 0, 0, 0, 0, 0, 0, :stats_reset, 0, 0, 0, 0, 0, 0
FROM pg_subscription WHERE oid = :subid

-- name: lake_maintenance
SELECT * FROM lake_maintenance WHERE subid = :subid ORDER BY relid

-- name: put_lake_maintenance
INSERT OR REPLACE INTO lake_maintenance
SELECT srsubid, srrelid, :since, :orphan_removals, :orphan_files, :reason
FROM pg_subscription_rel WHERE srsubid = :subid AND srrelid = :relid

-- name: lake_upkeep
SELECT * FROM lake_upkeep
WHERE subid = :subid AND (times > 0 OR error IS NOT NULL) ORDER BY relid, kind

-- name: add_lake_upkeep
INSERT INTO lake_upkeep
SELECT srsubid, srrelid, :kind, :times, :done, :failed, :error
FROM pg_subscription_rel WHERE srsubid = :subid AND srrelid = :relid
ON CONFLICT (subid, relid, kind) DO UPDATE SET
    times = times + excluded.times,
    done = coalesce(excluded.done, done),
    failed = excluded.failed,
    error = excluded.error

-- name: lake_writers
SELECT * FROM lake_writer WHERE subid = :subid

-- name: put_lake_writer
INSERT INTO lake_writer
SELECT srsubid, srrelid, :asked, :writer, :reason
FROM pg_subscription_rel WHERE srsubid = :subid AND srrelid = :relid
ON CONFLICT (subid, relid) DO UPDATE SET
    asked = excluded.asked, writer = excluded.writer, reason = excluded.reason
WHERE (asked, writer, reason) IS NOT (excluded.asked, excluded.writer, excluded.reason)

-- name: forget_maintenance_errors
UPDATE lake_upkeep SET failed = NULL, error = NULL WHERE subid = :subid AND relid = :relid

-- name: add_expired_files
INSERT INTO expired_files (subid, lake_schema, lake_table, table_uuid, expired, files)
VALUES (:subid, :lake_schema, :lake_table, :table_uuid, :expired, :files)

-- name: due_expired_files
SELECT * FROM expired_files
WHERE (subid = :subid OR subid NOT IN (SELECT oid FROM pg_subscription))
    AND (expired <= :before OR expired > :after)
    AND id NOT IN (SELECT value FROM json_each(:tried))
ORDER BY expired, id LIMIT 1

-- name: expired_files_of_table
SELECT * FROM expired_files
WHERE lake_schema = :lake_schema AND lake_table = :lake_table ORDER BY id

-- name: forget_expired_files
DELETE FROM expired_files WHERE id = :id

-- name: put_text_types
INSERT OR REPLACE INTO text_types
SELECT srsubid, srrelid, :epoch, :types, :changes, :since
FROM pg_subscription_rel
WHERE srsubid = :subid AND srrelid = :relid AND coalesce(epoch, '') = :epoch

-- name: text_types
SELECT t.* FROM text_types t
JOIN pg_subscription_rel r ON r.srsubid = t.subid AND r.srrelid = t.relid
WHERE t.subid = :subid AND t.relid = :relid AND t.epoch = coalesce(r.epoch, '')

-- name: changed_text
SELECT t.* FROM text_types t
JOIN pg_subscription_rel r ON r.srsubid = t.subid AND r.srrelid = t.relid
WHERE t.since IS NOT NULL AND t.epoch = coalesce(r.epoch, '') ORDER BY t.subid, t.relid

-- name: put_columns
INSERT OR REPLACE INTO table_columns
SELECT srsubid, srrelid, :epoch, :columns
FROM pg_subscription_rel
WHERE srsubid = :subid AND srrelid = :relid AND coalesce(epoch, '') = :epoch

-- name: columns
SELECT t.columns FROM table_columns t
JOIN pg_subscription_rel r ON r.srsubid = t.subid AND r.srrelid = t.relid
WHERE t.subid = :subid AND t.relid = :relid AND t.epoch = coalesce(r.epoch, '')

-- name: put_ddl_capture
INSERT INTO ddl_capture VALUES (:subid, :triggers)

-- name: forget_ddl_capture
DELETE FROM ddl_capture WHERE subid = :subid

-- name: ddl_capture
SELECT subid, triggers FROM ddl_capture ORDER BY subid

-- name: put_captured_shape
INSERT OR REPLACE INTO captured_shape
SELECT srsubid, srrelid, :epoch, :lsn, :shape, :rewritten, :with_using
FROM pg_subscription_rel WHERE srsubid = :subid AND srrelid = :relid

-- name: captured_shape
SELECT s.lsn, s.shape, s.rewritten, s.with_using FROM captured_shape s
JOIN pg_subscription_rel r ON r.srsubid = s.subid AND r.srrelid = s.relid
WHERE s.subid = :subid AND s.relid = :relid AND s.epoch = coalesce(r.epoch, '')

-- name: forget_captured_shape
DELETE FROM captured_shape WHERE subid = :subid AND relid = :relid

-- name: forget_captured_shapes
DELETE FROM captured_shape WHERE subid = :subid

-- name: add_schema_change
INSERT INTO schema_change (subid, relid, changed, lsn, changes, copies)
SELECT srsubid, srrelid, :changed, :lsn, :changes, :copies
FROM pg_subscription_rel WHERE srsubid = :subid AND srrelid = :relid

-- name: forget_schema_changes
DELETE FROM schema_change
WHERE subid = :subid AND relid = :relid AND id NOT IN (
    SELECT id FROM schema_change WHERE subid = :subid AND relid = :relid
    ORDER BY id DESC LIMIT :kept)

-- name: end_copy_of_change
UPDATE schema_change SET copied = :now
WHERE subid = :subid AND relid = :relid AND copies = 1 AND copied IS NULL

-- name: schema_changes
SELECT * FROM schema_change ORDER BY subid, relid, id

-- name: clear_skip_lsn
UPDATE pg_subscription SET subskiplsn = :none WHERE oid = :oid AND subskiplsn = :subskiplsn

-- name: settings
SELECT value FROM setting WHERE id = 1

-- name: put_settings
INSERT OR REPLACE INTO setting VALUES (1, :value)
