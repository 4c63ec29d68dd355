-- What a subscriber asks the publisher, by name. Words after a colon are replaced by literals or
-- identifiers that this room has quoted; no other text gets into a statement.

-- name: publications
SELECT t.pubname FROM pg_catalog.pg_publication t WHERE t.pubname IN (:publications)

-- name: tables_16
SELECT DISTINCT n.nspname, c.relname, gpt.attrs
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN (SELECT (pg_catalog.pg_get_publication_tables(
                VARIADIC pg_catalog.array_agg(pubname::pg_catalog.text))).*
      FROM pg_catalog.pg_publication
      WHERE pubname IN (:publications)) AS gpt ON gpt.relid = c.oid
ORDER BY 1, 2

-- A publisher before 16 also lists a partition that another publication already sends as part of
-- its root: it would be copied twice.
-- name: tables_15
SELECT DISTINCT t.schemaname, t.tablename, t.attnames
FROM pg_catalog.pg_publication_tables t
WHERE t.pubname IN (:publications) AND NOT EXISTS (:listed_ancestor)
ORDER BY 1, 2

-- name: tables_13
SELECT DISTINCT t.schemaname, t.tablename
FROM pg_catalog.pg_publication_tables t
WHERE t.pubname IN (:publications) AND NOT EXISTS (:listed_ancestor)
ORDER BY 1, 2

-- name: listed_ancestor
SELECT 1
FROM pg_catalog.pg_publication_tables o
JOIN pg_catalog.pg_namespace n ON n.nspname = o.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = o.tablename
JOIN pg_catalog.pg_namespace tn ON tn.nspname = t.schemaname
JOIN pg_catalog.pg_class tc ON tc.relnamespace = tn.oid AND tc.relname = t.tablename
WHERE o.pubname IN (:publications) AND c.relkind = 'p' AND c.oid <> tc.oid
  AND c.oid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(tc.oid))

-- name: tables_10
SELECT DISTINCT t.schemaname, t.tablename
FROM pg_catalog.pg_publication_tables t
WHERE t.pubname IN (:publications)
ORDER BY 1, 2

-- name: other_origins
SELECT DISTINCT n.nspname, c.relname, p.pubname
FROM pg_catalog.pg_publication p
CROSS JOIN LATERAL pg_catalog.pg_get_publication_tables(p.pubname::pg_catalog.text) gpt
JOIN pg_catalog.pg_class c ON c.oid = gpt.relid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_subscription_rel ps ON gpt.relid = ps.srrelid
  OR gpt.relid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(ps.srrelid)
                   UNION SELECT relid FROM pg_catalog.pg_partition_tree(ps.srrelid))
WHERE p.pubname IN (:publications)
ORDER BY 1, 2, 3

-- name: relation
SELECT c.oid, c.relreplident, c.relkind, c.relfilenode
FROM pg_catalog.pg_class c
INNER JOIN pg_catalog.pg_namespace n ON c.relnamespace = n.oid
WHERE n.nspname = :schema AND c.relname = :table

-- name: relids
SELECT w.nspname, w.relname, c.oid
FROM (VALUES :names) w (nspname, relname)
JOIN pg_catalog.pg_namespace n ON n.nspname = w.nspname::pg_catalog.name
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.relname::pg_catalog.name
WHERE c.relkind IN ('r', 'p')

-- name: relation_names
SELECT c.oid, n.nspname, c.relname
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid IN (:relids) AND c.relkind IN ('r', 'p')

-- name: column_list
SELECT DISTINCT CASE WHEN pg_catalog.array_length(gpt.attrs, 1) = c.relnatts THEN NULL
                     ELSE gpt.attrs END
FROM pg_catalog.pg_publication p,
     LATERAL pg_catalog.pg_get_publication_tables(p.pubname::pg_catalog.text) gpt,
     pg_catalog.pg_class c
WHERE gpt.relid = :relid AND c.oid = gpt.relid AND p.pubname IN (:publications)

-- name: columns_18
SELECT a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull,
       a.attnum = ANY ((i.indkey::pg_catalog.int2[])[0 : i.indnkeyatts - 1]), a.attgenerated <> '',
       i.indnkeyatts
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_index i
  ON i.indexrelid = pg_catalog.pg_get_replica_identity_index(:relid)
WHERE a.attnum > 0::pg_catalog.int2 AND NOT a.attisdropped AND a.attrelid = :relid
ORDER BY a.attnum

-- name: columns_12
SELECT a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull,
       a.attnum = ANY ((i.indkey::pg_catalog.int2[])[0 : i.indnkeyatts - 1]), false, i.indnkeyatts
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_index i
  ON i.indexrelid = pg_catalog.pg_get_replica_identity_index(:relid)
WHERE a.attnum > 0::pg_catalog.int2 AND NOT a.attisdropped AND a.attrelid = :relid
  AND a.attgenerated = ''
ORDER BY a.attnum

-- name: columns_10
SELECT a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull,
       a.attnum = ANY (i.indkey), false, i.indnatts
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_index i
  ON i.indexrelid = pg_catalog.pg_get_replica_identity_index(:relid)
WHERE a.attnum > 0::pg_catalog.int2 AND NOT a.attisdropped AND a.attrelid = :relid
ORDER BY a.attnum

-- The columns of the replica identities of relations, and whether each is sent. Under FULL the
-- columns of the primary key, by which the native subscriber finds a row; a row without a column
-- says that some partition logs another identity, and whether one lacks a column of the primary
-- key. No table is opened for it
-- (pg_get_replica_identity_index would): who has locked one may be waiting for us.
-- name: identities
SELECT c.oid, a.attname, :sent
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_index i ON i.indrelid = c.oid
  AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident
                          WHEN 'f' THEN i.indisprimary AND i.indimmediate ELSE false END
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (:key)
WHERE c.oid IN (:relids)
UNION ALL
SELECT c.oid, NULL, pg_catalog.bool_or(EXISTS (
    SELECT 1
    FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (:key)
    WHERE i.indrelid = c.oid AND i.indisprimary AND NOT EXISTS (
        SELECT 1
        FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_attribute b ON b.attrelid = l.oid AND b.attnum = ANY (:key)
        WHERE i.indrelid = l.oid AND b.attname = a.attname
          AND CASE l.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident
                                  ELSE false END)))
FROM pg_catalog.pg_class c
CROSS JOIN LATERAL (
    WITH RECURSIVE tree (oid) AS (
        SELECT h.inhrelid FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid
        UNION ALL
        SELECT h.inhrelid FROM pg_catalog.pg_inherits h JOIN tree ON h.inhparent = tree.oid)
    SELECT p.oid, p.relreplident FROM tree JOIN pg_catalog.pg_class p ON p.oid = tree.oid
    WHERE p.relkind = 'r' AND p.relreplident <> 'f') l
WHERE c.oid IN (:relids) AND c.relkind = 'p' AND c.relreplident = 'f'
GROUP BY c.oid

-- name: key_10
i.indkey

-- name: key_11
(i.indkey::pg_catalog.int2[])[0 : i.indnkeyatts - 1]

-- name: sent_10
true

-- name: sent_12
a.attgenerated = ''

-- name: sent_15
a.attgenerated = '' AND NOT EXISTS (:listed AND a.attnum <> ALL (pr.prattrs::pg_catalog.int2[]))

-- name: sent_18
NOT EXISTS (:listed AND a.attnum <> ALL (pr.prattrs::pg_catalog.int2[]))
  AND (a.attgenerated = ''
       OR EXISTS (:listed AND a.attnum = ANY (pr.prattrs::pg_catalog.int2[]))
       OR EXISTS (SELECT 1 FROM pg_catalog.pg_publication p
                  WHERE p.pubname IN (:publications) AND p.pubgencols <> 'n'
                    AND (p.puballtables OR EXISTS (:in_publication))))

-- As pg_get_publication_tables, which opens tables, would say it.
-- name: in_publication
SELECT 1
FROM (SELECT c.oid UNION SELECT relid FROM pg_catalog.pg_partition_ancestors(c.oid)) r (oid)
JOIN pg_catalog.pg_class a ON a.oid = r.oid
WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_publication_rel pr
              WHERE pr.prpubid = p.oid AND pr.prrelid = a.oid)
   OR EXISTS (SELECT 1 FROM pg_catalog.pg_publication_namespace pn
              WHERE pn.pnpubid = p.oid AND pn.pnnspid = a.relnamespace)

-- name: listed
SELECT 1
FROM pg_catalog.pg_publication p
JOIN pg_catalog.pg_publication_rel pr ON pr.prpubid = p.oid
WHERE p.pubname IN (:publications) AND pr.prrelid = c.oid AND pr.prattrs IS NOT NULL

-- name: row_filters
SELECT DISTINCT pg_catalog.pg_get_expr(gpt.qual, gpt.relid)
FROM pg_catalog.pg_publication p,
     LATERAL pg_catalog.pg_get_publication_tables(p.pubname::pg_catalog.text) gpt
WHERE gpt.relid = :relid AND p.pubname IN (:publications)

-- What a column's text is made of: domains down to their base, arrays down to their elements.
-- An array is what array_in reads: point, int2vector and others also have a typelem.
-- name: types
WITH RECURSIVE needed (oid) AS (
    SELECT t.oid FROM pg_catalog.pg_type t WHERE t.oid IN (:types)
    UNION
    SELECT part.oid
    FROM needed
    JOIN pg_catalog.pg_type t ON t.oid = needed.oid
    JOIN pg_catalog.pg_type part ON part.oid IN (t.typbasetype, t.typelem)
)
SELECT t.oid, n.nspname, t.typname, t.typtype, t.typbasetype, t.typtypmod,
       CASE WHEN t.typinput = 'pg_catalog.array_in'::pg_catalog.regproc THEN t.typelem ELSE 0 END,
       t.typdelim
FROM needed
JOIN pg_catalog.pg_type t ON t.oid = needed.oid
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace

-- The enums and composites that columns of relations are made of: below domains, arrays, ranges
-- and other composites.
-- name: text_types
WITH RECURSIVE needed (relid, attname, oid) AS (
    SELECT a.attrelid, a.attname, a.atttypid
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid IN (:relids) AND a.attnum > 0 AND NOT a.attisdropped
    UNION
    SELECT n.relid, n.attname, part.oid
    FROM needed n
    JOIN pg_catalog.pg_type t ON t.oid = n.oid
    CROSS JOIN LATERAL (
        SELECT t.typbasetype
        UNION ALL SELECT t.typelem
        UNION ALL :ranges
        UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a
                  WHERE t.typrelid <> 0 AND a.attrelid = t.typrelid AND a.attnum > 0
                    AND NOT a.attisdropped
    ) part (oid)
    WHERE part.oid >= 16384 OR part.oid IN (:named)
)
SELECT n.relid, n.attname, t.oid, t.typtype, pg_catalog.format_type(t.oid, NULL)
FROM needed n
JOIN pg_catalog.pg_type t ON t.oid = n.oid
WHERE t.typtype IN ('e', 'c') AND t.oid >= 16384 OR t.oid IN (:named)
ORDER BY 1, 2, 3

-- The names of objects by oid, but for those that the server brings along.
-- name: object_names
SELECT o.oid, o.name
FROM (:objects) o (oid, name)
WHERE o.oid >= 16384
LIMIT :limit

-- name: relations
SELECT c.oid, n.nspname || '.' || c.relname
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND c.relpersistence <> 't'

-- name: functions
SELECT p.oid, n.nspname || '.' || p.proname
FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace

-- name: named_types
SELECT y.oid, n.nspname || '.' || y.typname
FROM pg_catalog.pg_type y
JOIN pg_catalog.pg_namespace n ON n.oid = y.typnamespace
WHERE y.typelem = 0

-- name: schemas
SELECT n.oid, n.nspname::text
FROM pg_catalog.pg_namespace n
WHERE n.nspname !~ '^pg_(toast_)?temp_'

-- name: roles
SELECT r.oid, r.rolname::text
FROM pg_catalog.pg_roles r

-- The columns of relations with type and row version in the catalog, and the files of the relation
-- and its partitions: a new file, and a new version under one type, say that values were computed.
-- name: column_numbers
SELECT a.attrelid, a.attname, a.attnum,
       a.atttypid::text || '/' || a.atttypmod::text || '/' || a.xmin::text, f.files
FROM pg_catalog.pg_class c
CROSS JOIN LATERAL (
    :tree
    SELECT pg_catalog.string_agg(p.oid::text || ':' || p.relfilenode::text, ' ' ORDER BY p.oid)
    FROM tree JOIN pg_catalog.pg_class p ON p.oid = tree.oid
    WHERE p.relfilenode <> 0) f (files)
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
WHERE c.oid IN (:relids) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY 1, 3

-- Partitions that came into the tree of a table by ATTACH with rows, and relations that are there
-- still although they left the tree. A partition that was made as one has the row of its type from
-- the transaction of its link. So has a table that is made, filled and attached in one transaction:
-- ATTACH writes the rows of its columns anew, and the row of its system column ctid stays. A column
-- with a default is written anew too, so a new partition whose columns all have defaults counts as
-- attached. A link above counts if it is younger than the partition's own.
-- name: moved_partitions
SELECT true, p.oid::pg_catalog.regclass::text
FROM pg_catalog.pg_class p
JOIN pg_catalog.pg_inherits own ON own.inhrelid = p.oid
WHERE p.oid IN (:came) AND pg_catalog.pg_relation_size(p.oid) > 0 AND EXISTS (
    SELECT FROM pg_catalog.pg_partition_ancestors(p.oid) l
    JOIN pg_catalog.pg_inherits i ON i.inhrelid = l.relid
    JOIN pg_catalog.pg_class c ON c.oid = l.relid
    JOIN pg_catalog.pg_type t ON t.oid = c.reltype
    WHERE age(i.xmin) <= age(own.xmin) AND (t.xmin::text <> i.xmin::text OR NOT EXISTS (
        SELECT FROM pg_catalog.pg_attribute a
        JOIN pg_catalog.pg_attribute made ON made.attrelid = a.attrelid AND made.attnum = -1
        WHERE a.attrelid = c.oid AND a.attnum > 0
          AND a.xmin::text = made.xmin::text AND a.cmin::text = made.cmin::text)))
UNION ALL
SELECT false, g.oid::pg_catalog.regclass::text FROM pg_catalog.pg_class g WHERE g.oid IN (:went)
ORDER BY 1, 2

-- name: declared_columns
SELECT a.attnum, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull,
       pg_catalog.pg_get_expr(d.adbin, d.adrelid), :declared
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = :relid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: declared_10
a.attidentity::pg_catalog.text

-- name: declared_12
a.attidentity::pg_catalog.text || a.attgenerated::pg_catalog.text

-- A relation and its partitions, at any depth.
-- name: tree
WITH RECURSIVE tree (oid) AS (
    SELECT :relid::pg_catalog.oid
    UNION ALL
    SELECT h.inhrelid
    FROM pg_catalog.pg_inherits h
    JOIN tree ON h.inhparent = tree.oid
    JOIN pg_catalog.pg_class l ON l.oid = h.inhrelid AND l.relispartition)

-- The columns of a relation with dropped ones, and the files of the relation and its partitions, as
-- of one moment: a file says that no row was rewritten since an earlier question.
-- name: shape
:tree
SELECT a.attnum, a.attname, a.atttypid, a.atttypmod, a.attisdropped, :computed, s.relations,
       (SELECT pg_catalog.string_agg(f.oid::text || ':' || f.relfilenode::text, ' ' ORDER BY f.oid)
        FROM pg_catalog.pg_class f WHERE f.oid IN (SELECT oid FROM tree) AND f.relfilenode <> 0),
       :lists, a.xmin, s.value
FROM pg_catalog.pg_attribute a, LATERAL (:stored) s (relations, value)
WHERE a.attrelid = :relid AND a.attnum > 0
ORDER BY a.attnum

-- The event triggers that tell of changed tables. A trigger that was disabled for a while has
-- another row version.
-- name: ddl_triggers
SELECT evtname, oid::text || '/' || xmin::text FROM pg_catalog.pg_event_trigger
WHERE evtname ~ '^pgsub_(ddl_command_end|sql_drop|table_rewrite)$' AND evtenabled IN ('O', 'A')
ORDER BY evtname

-- The key of the triggers' messages.
-- name: ddl_key
SELECT key FROM pgsub.ddl_key

-- The bytes of a relation and its partitions with TOAST and without indexes. The first form takes a
-- lock on each table; the second one has the sizes of the last VACUUM or ANALYZE.
-- name: table_size
:tree
SELECT coalesce(pg_catalog.sum(pg_catalog.pg_table_size(oid)), 0)::pg_catalog.int8 FROM tree

-- name: table_pages
:tree
SELECT coalesce(pg_catalog.sum(
    f.relpages::pg_catalog.int8
        * pg_catalog.current_setting('block_size')::pg_catalog.int8), 0)::pg_catalog.int8
FROM tree
JOIN pg_catalog.pg_class c ON c.oid = tree.oid
JOIN pg_catalog.pg_class f ON f.oid IN (c.oid, c.reltoastrelid)

-- The bytes of the largest of some tables at the last VACUUM or ANALYZE.
-- name: largest_table
SELECT coalesce(pg_catalog.max(
    relpages::pg_catalog.int8
        * pg_catalog.current_setting('block_size')::pg_catalog.int8), 0)::pg_catalog.int8
FROM pg_catalog.pg_class
WHERE oid IN (:relids)

-- name: lists_10
''

-- name: lists_15
(SELECT pg_catalog.string_agg(
            pr.oid::text || '/' || pr.xmin::text
                || CASE WHEN pr.prattrs IS NULL THEN '' ELSE '*' END, ' ' ORDER BY pr.oid)
 FROM pg_catalog.pg_publication_rel pr
 JOIN pg_catalog.pg_publication p ON p.oid = pr.prpubid
 WHERE p.pubname IN (:publications)
   AND (pr.prrelid = :relid
        OR pr.prrelid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(:relid))))

-- name: computed_10
a.attidentity <> ''

-- name: computed_12
a.attgenerated <> '' OR a.attidentity <> ''

-- The stored default of a column: the relations that have one, and its text as an array of one
-- element, if the relations agree.
-- name: stored_10
SELECT NULL, NULL

-- name: stored_11
SELECT pg_catalog.string_agg(p.attrelid::text, ' '),
       CASE WHEN pg_catalog.count(DISTINCT p.attmissingval::pg_catalog.text) = 1
            THEN pg_catalog.min(p.attmissingval::pg_catalog.text) END
FROM pg_catalog.pg_attribute p
WHERE p.attrelid IN (SELECT oid FROM tree) AND p.attname = a.attname AND p.atthasmissing

-- name: ranges_10
SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid

-- name: ranges_14
SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)

-- name: type_parts
SELECT e.enumtypid, e.oid, e.enumlabel, e.xmin::text
FROM pg_catalog.pg_enum e
WHERE e.enumtypid IN (:types)
UNION ALL
SELECT t.oid, a.attnum::pg_catalog.int4::pg_catalog.oid, a.attname, r.relnatts::text
FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_class r ON r.oid = t.typrelid
JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid
WHERE t.oid IN (:types) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY 1, 2

-- One number for all texts that values of some types may have: another number, another text. A
-- server under FIPS refuses md5 from 14 on; the md5 of 10 is its own. The bytes are taken as they
-- are: in SQL_ASCII they may be valid in no encoding.
-- name: text_mark_11
SELECT pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.string_agg(
           p.type::text || ' ' || p.part::text || ' ' || p.text || ' ' || p.version, E'\n'
           ORDER BY p.type, p.part, p.text), pg_catalog.getdatabaseencoding())), 'hex')
FROM (:parts) p (type, part, text, version)

-- name: text_mark_10
SELECT pg_catalog.md5(pg_catalog.string_agg(
           p.type::text || ' ' || p.part::text || ' ' || p.text || ' ' || p.version, E'\n'
           ORDER BY p.type, p.part, p.text))
FROM (:parts) p (type, part, text, version)

-- name: mark_of_names
SELECT :type::pg_catalog.oid, o.oid, o.name, ''
FROM (:objects) o (oid, name)
WHERE o.oid >= 16384

-- The types of everything that may be published, column lists and row filters aside; from 16 on.
-- Unlike pg_publication_tables it waits for no lock on a table.
-- name: published_types
SELECT DISTINCT a.atttypid
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p')
  AND EXISTS (
    SELECT FROM pg_catalog.pg_publication p
    WHERE p.pubname IN (:publications)
      AND (p.puballtables AND c.oid >= 16384
           OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel r
                      WHERE r.prpubid = p.oid AND r.prrelid = c.oid)
           OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace n
                      WHERE n.pnpubid = p.oid AND n.pnnspid = c.relnamespace))
  )

-- The C functions that write a type, and what it is made of; asked from 14 on.
-- name: binary_types
WITH RECURSIVE needed (oid) AS (
    SELECT t.oid FROM pg_catalog.pg_type t WHERE t.oid IN (:types)
    UNION
    SELECT part.oid
    FROM needed
    JOIN pg_catalog.pg_type t ON t.oid = needed.oid
    CROSS JOIN LATERAL (
        SELECT t.typbasetype
        UNION ALL SELECT t.typelem
        UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid
        UNION ALL SELECT r.rngtypid FROM pg_catalog.pg_range r WHERE r.rngmultitypid = t.oid
        UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a
                  WHERE t.typrelid <> 0 AND a.attrelid = t.typrelid AND a.attnum > 0
                    AND NOT a.attisdropped
    ) part (oid)
    WHERE part.oid >= 16384
), written AS (
    SELECT t.oid, t.typbasetype, t.typrelid, t.typelem, t.typdelim, t.typsend,
           CASE WHEN send.prolang = 12 THEN send.prosrc ELSE '?' END AS send,
           CASE WHEN output.prolang = 12 THEN output.prosrc ELSE '?' END AS output
    FROM needed
    JOIN pg_catalog.pg_type t ON t.oid = needed.oid
    LEFT JOIN pg_catalog.pg_proc send ON send.oid = t.typsend
    JOIN pg_catalog.pg_proc output ON output.oid = t.typoutput
)
SELECT w.oid, w.typbasetype, CASE WHEN w.typsend = 0 THEN '' ELSE w.send END, w.output,
       CASE w.send
           WHEN 'array_send' THEN w.typelem::pg_catalog.text
           WHEN 'range_send' THEN (SELECT r.rngsubtype::pg_catalog.text
                                   FROM pg_catalog.pg_range r WHERE r.rngtypid = w.oid)
           WHEN 'multirange_send' THEN (SELECT r.rngtypid::pg_catalog.text
                                        FROM pg_catalog.pg_range r WHERE r.rngmultitypid = w.oid)
           WHEN 'record_send' THEN (
               SELECT pg_catalog.string_agg(a.atttypid::pg_catalog.text, ' ' ORDER BY a.attnum)
               FROM pg_catalog.pg_attribute a
               WHERE a.attrelid = w.typrelid AND a.attnum > 0 AND NOT a.attisdropped)
       END, w.typdelim
FROM written w

-- Where :relations make a table part of publication p: the versions of its rows there.
-- name: rel_versions
SELECT pg_catalog.string_agg(pr.oid::text || '/' || pr.xmin::text, ' ' ORDER BY pr.oid)
FROM pg_catalog.pg_publication_rel pr
WHERE pr.prpubid = p.oid AND pr.prrelid IN (:relations)

-- name: namespace_versions
SELECT pg_catalog.string_agg(pn.oid::text || '/' || pn.xmin::text, ' ' ORDER BY pn.oid)
FROM pg_catalog.pg_publication_namespace pn
     JOIN pg_catalog.pg_class a ON a.relnamespace = pn.pnnspid
WHERE pn.pnpubid = p.oid AND a.oid IN (:relations)

-- name: inherits_versions
SELECT pg_catalog.string_agg(i.inhparent::text || '/' || i.xmin::text, ' ' ORDER BY i.inhparent)
FROM pg_catalog.pg_inherits i
WHERE i.inhrelid IN (:relations)

-- name: with_ancestors
SELECT gpt.relid UNION SELECT relid FROM pg_catalog.pg_partition_ancestors(gpt.relid)

-- Actions and row filter of every table (or of :relid), one row for each publication that has it.
-- The ninth column tells a publication that was changed, and changed back, from one that was not:
-- the row versions of whatever makes the table part of it. The last two tell of the table's file.
-- name: published
SELECT n.nspname, c.relname, p.pubinsert, p.pubupdate, p.pubdelete, :truncate, :viaroot, :qual,
       pg_catalog.concat_ws(' ', p.oid::text || '/' || p.xmin::text, :versions),
       c.relfilenode, c.xmin
FROM pg_catalog.pg_publication p,
     LATERAL pg_catalog.pg_get_publication_tables(p.pubname::pg_catalog.text) gpt
     JOIN pg_catalog.pg_class c ON c.oid = gpt.relid
     JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname IN (:publications) AND :relid IN (0, gpt.relid)

-- Where a table's rows are stored: itself, or a partitioned table's leaves.
-- name: leaves
SELECT c.oid, n.nspname, c.relname, c.relkind
FROM pg_catalog.pg_partition_tree(:relid) t
JOIN pg_catalog.pg_class c ON c.oid = t.relid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE t.isleaf
ORDER BY c.oid

-- The relations that a role can neither lock nor read by ctid: LOCK TABLE and system columns take
-- a privilege on the whole table, a grant on columns does not count.
-- name: not_lockable
SELECT count(*)
FROM pg_catalog.pg_class c
WHERE c.oid IN (:relids)
  AND NOT (pg_catalog.has_table_privilege(c.oid, 'SELECT')
           AND pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE'))

-- By way of JSON because the columns are there from version 13, 17 and 16 on only.
-- name: slot
SELECT plugin, slot_type, database, active, active_pid, confirmed_flush_lsn,
       pg_catalog.current_database(), pg_catalog.to_jsonb(s) ->> 'wal_status',
       pg_catalog.to_jsonb(s) ->> 'invalidation_reason', pg_catalog.to_jsonb(s) ->> 'conflicting'
FROM pg_catalog.pg_replication_slots s WHERE slot_name = :slot

-- Both positions in one statement; a standby has no current position.
-- name: slot_lag
SELECT active,
       GREATEST(0, COALESCE(pg_catalog.pg_wal_lsn_diff(
         CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
              ELSE pg_catalog.pg_current_wal_lsn() END, confirmed_flush_lsn), 0)),
       pg_catalog.to_jsonb(s) ->> 'wal_status', pg_catalog.to_jsonb(s) ->> 'safe_wal_size'
FROM pg_catalog.pg_replication_slots s WHERE slot_name = :slot

-- The permanent ones.
-- name: sync_slots
SELECT slot_name FROM pg_catalog.pg_replication_slots
WHERE slot_type = 'logical' AND plugin = 'pgoutput' AND NOT temporary
  AND database = pg_catalog.current_database() AND slot_name ~ :pattern
ORDER BY slot_name

-- name: is_in_recovery
SELECT pg_catalog.pg_is_in_recovery()

-- pg_class is read under the transaction's snapshot, pg_relation_filenode is not.
-- name: rewritten
SELECT count(*)
FROM pg_catalog.pg_class c
WHERE c.oid IN (:relids) AND c.relfilenode <> 0
  AND c.relfilenode <> pg_catalog.pg_relation_filenode(c.oid)

-- pg_attribute is read under the transaction's snapshot, pg_identify_object_as_address is not, as
-- the names of a COPY are not.
-- name: renamed
SELECT count(*)
FROM pg_catalog.pg_attribute a,
     LATERAL pg_catalog.pg_identify_object_as_address(
       'pg_catalog.pg_class'::pg_catalog.regclass, a.attrelid, a.attnum::integer) n
WHERE a.attrelid = :relid AND a.attnum > 0 AND NOT a.attisdropped
  AND a.attname::pg_catalog.text IS DISTINCT FROM n.object_names[3]

-- Frees a name of ours: an inactive slot is dropped, our own session (told by its name) ended.
-- name: free_slot
SELECT CASE
         WHEN s.active_pid IS NULL
           THEN pg_catalog.pg_drop_replication_slot(s.slot_name)::pg_catalog.text IS NOT NULL
         WHEN a.application_name = s.slot_name AND a.usename = current_user
           THEN pg_catalog.pg_terminate_backend(s.active_pid, 5000)
         ELSE false
       END
FROM pg_catalog.pg_replication_slots s
     LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = :slot

-- What a backend waits for: the transaction, and the session or the prepared transaction behind it.
-- name: waited_transactions
SELECT w.transactionid, h.pid, a.application_name, x.gid,
       pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()
                                           - coalesce(a.xact_start, x.prepared)))::pg_catalog.int8
FROM pg_catalog.pg_locks w
LEFT JOIN pg_catalog.pg_locks h
  ON h.locktype = 'transactionid' AND h.transactionid = w.transactionid AND h.granted
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = h.pid
LEFT JOIN pg_catalog.pg_prepared_xacts x ON x.transaction = w.transactionid
WHERE w.pid = :pid AND w.locktype = 'transactionid' AND NOT w.granted
