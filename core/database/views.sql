-- SPDX-License-Identifier: Apache-2.0
-- The arithmetic of reports. Each number is explained in docs/METRICS.md. Views can be made anew at any time.
-- Workers are numbered (replica * stages + rank) * tensor + tensor rank. All workers that meet in a rank's tasks count as tensor ranks, also
-- those that share experts or the tokens of rows, and all others as replicas: v_configuration has these numbers as they were asked for.

-- Time of one training step: what the tool reported, else the median of the plain steps (not traced, of full size, after warm-up).
-- Quantiles are those of the plain steps, by nearest rank.
DROP VIEW IF EXISTS v_ms_per_batch;
CREATE VIEW v_ms_per_batch AS
WITH counted AS (
    SELECT run, ns, traced, tokens,
        row_number() OVER (PARTITION BY run ORDER BY step) AS ordinal,
        count(*) OVER (PARTITION BY run) AS steps,
        max(tokens) OVER (PARTITION BY run) AS full_tokens
    FROM step
), plain AS (
    SELECT c.run, c.ns / 1e6 AS ms,
        row_number() OVER (PARTITION BY c.run ORDER BY c.ns) AS place,
        count(*) OVER (PARTITION BY c.run) AS n
    FROM counted c LEFT JOIN run_config w ON w.run = c.run AND w.name = 'warmup'
    WHERE NOT c.traced AND c.tokens = c.full_tokens
        AND c.ordinal > CASE WHEN w.value GLOB '[0-9]*' THEN min(CAST(w.value AS INTEGER), c.steps - 1) ELSE min(3, c.steps / 4) END
), spread AS (
    SELECT run, n AS plain_steps,
        avg(ms) FILTER (WHERE place IN ((n + 1) / 2, n / 2 + 1)) AS median_ms,
        max(ms) FILTER (WHERE place = (n * 5 + 99) / 100) AS p5_ms,
        max(ms) FILTER (WHERE place = (n * 95 + 99) / 100) AS p95_ms
    FROM plain GROUP BY run
)
SELECT r.id AS run, coalesce(r.ms_per_batch, s.median_ms) AS ms, s.median_ms, s.p5_ms, s.p95_ms,
    coalesce(s.plain_steps, 0) AS plain_steps
FROM run r LEFT JOIN spread s ON s.run = r.id
WHERE r.plan IS NOT NULL;

-- Idle share of each worker's compute lane: medians over the traced steps, so that a disturbed one does not count.
DROP VIEW IF EXISTS v_bubble;
CREATE VIEW v_bubble AS
WITH traced AS (
    SELECT b.run, b.worker, r.stages, r.tensor, b.busy_ns / 1e6 AS busy_ms, w.makespan_ns / 1e6 AS makespan_ms,
        1.0 - b.busy_ns * 1.0 / w.makespan_ns AS bubble,
        1.0 - (b.busy_ns - b.recompute_ns) * 1.0 / w.makespan_ns AS useful_bubble
    FROM busy b JOIN run r ON r.id = b.run
        JOIN (
            SELECT o.run, o.step, o.worker / (q.stages * q.tensor) AS replica, max(o.last_ns) - min(o.first_ns) AS makespan_ns
            FROM busy o JOIN run q ON q.id = o.run
            GROUP BY o.run, o.step, o.worker / (q.stages * q.tensor)
        ) w ON w.run = b.run AND w.step = b.step AND w.replica = b.worker / (r.stages * r.tensor)
), placed AS (
    SELECT *, count(*) OVER (PARTITION BY run, worker) AS n,
        row_number() OVER (PARTITION BY run, worker ORDER BY busy_ms) AS busy_place,
        row_number() OVER (PARTITION BY run, worker ORDER BY makespan_ms) AS makespan_place,
        row_number() OVER (PARTITION BY run, worker ORDER BY bubble) AS bubble_place,
        row_number() OVER (PARTITION BY run, worker ORDER BY useful_bubble) AS useful_place
    FROM traced
)
SELECT run, worker, worker / (stages * tensor) AS replica, worker / tensor % stages AS rank, worker % tensor AS tensor_rank,
    n AS steps,
    avg(busy_ms) FILTER (WHERE busy_place IN ((n + 1) / 2, n / 2 + 1)) AS busy_ms,
    avg(makespan_ms) FILTER (WHERE makespan_place IN ((n + 1) / 2, n / 2 + 1)) AS makespan_ms,
    avg(bubble) FILTER (WHERE bubble_place IN ((n + 1) / 2, n / 2 + 1)) AS bubble,
    avg(useful_bubble) FILTER (WHERE useful_place IN ((n + 1) / 2, n / 2 + 1)) AS useful_bubble
FROM placed GROUP BY run, worker, stages, tensor, n;

-- Bytes of each worker. The kinds that the arena is made of are in table memory.
DROP VIEW IF EXISTS v_memory;
CREATE VIEW v_memory AS
SELECT m.run, m.worker, m.worker / (r.stages * r.tensor) AS replica, m.worker / r.tensor % r.stages AS rank,
    m.worker % r.tensor AS tensor_rank,
    max(m.bytes) FILTER (WHERE m.kind = 'arena') AS arena_bytes,
    max(m.bytes) FILTER (WHERE m.kind = 'live_peak') AS live_peak_bytes,
    max(m.bytes) FILTER (WHERE m.kind = 'process') AS process_bytes
FROM memory m JOIN run r ON r.id = m.run
WHERE r.stages > 0
GROUP BY m.run, m.worker, r.stages, r.tensor;

-- Tasks of one kind in one run; per_step and ms_per_step are of one replica, of one worker of each rank (a prediction may hold no others). A transfer lasts from the moment when both ends are ready to the moment when the receiver has it.
DROP VIEW IF EXISTS v_task_kind;
CREATE VIEW v_task_kind AS
WITH taken AS (
    SELECT e.run, t.kind, e.end_ns - e.start_ns AS ns,
        (e.step * r.replicas + e.worker / (r.stages * r.tensor)) * r.tensor + e.worker % r.tensor AS pass
    FROM event e JOIN run r ON r.id = e.run JOIN task t ON t.plan = r.plan AND t.id = e.task
    WHERE e.side <> 1
)
SELECT run, kind, count(*) * 1.0 / count(DISTINCT pass) AS per_step, avg(ns) / 1e3 AS mean_us, min(ns) / 1e3 AS min_us,
    max(ns) / 1e3 AS max_us, sum(ns) / 1e6 / count(DISTINCT pass) AS ms_per_step
FROM taken GROUP BY run, kind;

-- What each task of a plan waits for, one row for each edge: `task` starts when `needs` of the same step (steps_back = 0), or of the step
-- before (steps_back = 1), has ended. `why` names the reason (docs/DATABASE.md): what it works on (input, parameters), memory that must be
-- free again (send slot, receive slot), or the place of a receive in its rank's list (receive order).
DROP VIEW IF EXISTS v_task_edge;
CREATE VIEW v_task_edge AS
SELECT plan, id AS task, dep0 AS needs, 0 AS steps_back, 'input' AS why
FROM task WHERE dep0 IS NOT NULL AND NOT dep_range
UNION ALL
SELECT plan, id, dep1, 0, CASE WHEN computes THEN 'send slot' WHEN kind IN ('XFER_F', 'XFER_B') THEN 'receive slot'
    WHEN kind = 'REDUCE_TIED' THEN 'input' END
FROM task WHERE dep1 IS NOT NULL AND NOT dep_range
UNION ALL
SELECT plan, id, dep2, 0, CASE WHEN computes THEN 'parameters' WHEN kind IN ('XFER_F', 'XFER_B') THEN 'receive order' END
FROM task WHERE dep2 IS NOT NULL AND NOT dep_range
UNION ALL
SELECT t.plan, t.id, n.id, 0, 'input'
FROM task t JOIN task n ON n.plan = t.plan AND n.id BETWEEN t.dep0 AND t.dep1 WHERE t.dep_range
UNION ALL
SELECT w.plan, w.task, w.needs, 1, CASE WHEN t.kind IN ('XFER_F', 'XFER_B') THEN 'receive slot'
    WHEN n.kind IN ('XFER_F', 'XFER_B') THEN 'send slot' WHEN t.kind = 'GATHER_PARAM' THEN 'input'
    WHEN n.kind = 'GATHER_PARAM' THEN 'parameters' END
FROM wrap w JOIN task t ON t.plan = w.plan AND t.id = w.task JOIN task n ON n.plan = w.plan AND n.id = w.needs;

-- The finished runs that can be compared.
DROP VIEW IF EXISTS v_result;
CREATE VIEW v_result AS
SELECT r.*, m.ms, m.p5_ms, m.p95_ms, m.plain_steps,
    (SELECT max(bytes) FROM memory WHERE run = r.id AND kind = 'arena') AS peak_bytes,
    (SELECT max(bytes) FROM memory WHERE run = r.id AND kind = 'process') AS process_bytes
FROM run r JOIN v_ms_per_batch m ON m.run = r.id
WHERE r.status = 'ok' AND r.tool IN ('ppsim', 'ppexec') AND m.ms IS NOT NULL;

-- Which finished runs belong together: a measurement and the newest prediction of the same plan, workload, device and threads; a
-- prediction for the same transport goes before others, then one of the same schedule: equal plans of two schedules were profiled
-- apart. `newest` marks one row for each configuration: its newest measurement (of each transport; one with steps before one without,
-- which resumed a run that had ended), or its newest prediction where
-- no such plan was measured. Schedules may have the same plan (gpipe and 1f1b with one chunk) and so may numbers of chunks (8 and 7
-- of 20 rows): each that was measured, or else predicted, is a configuration of its own. A prediction of another name beside a
-- measurement is none: the measurement has its prediction, and would be shown twice.
DROP VIEW IF EXISTS v_pair;
CREATE VIEW v_pair AS
SELECT (SELECT id FROM (
            SELECT p.id, p.transport IS m.transport AS same_transport, p.schedule = m.schedule AS same_schedule
            FROM run p WHERE p.plan_hash = m.plan_hash AND p.workload = m.workload AND p.device IS m.device
                AND p.threads IS m.threads AND p.tool = 'ppsim' AND p.status = 'ok')
        ORDER BY same_transport DESC, same_schedule DESC, id DESC LIMIT 1
    ) AS predicted_run, m.id AS measured_run,
    m.id = (SELECT o.id FROM run o WHERE o.plan_hash = m.plan_hash AND o.workload = m.workload AND o.device IS m.device
        AND o.threads IS m.threads AND o.tool = 'ppexec' AND o.status = 'ok' AND o.transport IS m.transport
        AND o.schedule = m.schedule AND o.chunks = m.chunks
        ORDER BY EXISTS (SELECT 1 FROM step WHERE run = o.id) DESC, o.id DESC LIMIT 1) AS newest
FROM run m
WHERE m.tool = 'ppexec' AND m.status = 'ok' AND m.plan IS NOT NULL
UNION ALL
SELECT p.id,
    (SELECT m.id FROM run m WHERE m.plan_hash = p.plan_hash AND m.workload = p.workload AND m.device IS p.device
        AND m.threads IS p.threads AND m.tool = 'ppexec' AND m.status = 'ok'
        ORDER BY EXISTS (SELECT 1 FROM step WHERE run = m.id) DESC, m.id DESC LIMIT 1),
    p.id = (SELECT max(o.id) FROM run o WHERE o.plan_hash = p.plan_hash AND o.workload = p.workload AND o.device IS p.device
        AND o.threads IS p.threads AND o.tool = 'ppsim' AND o.status = 'ok' AND o.schedule = p.schedule AND o.chunks = p.chunks)
    AND NOT EXISTS (
        SELECT 1 FROM run m WHERE m.plan_hash = p.plan_hash AND m.workload = p.workload AND m.device IS p.device
            AND m.threads IS p.threads AND m.tool = 'ppexec' AND m.status = 'ok')
FROM run p
WHERE p.tool = 'ppsim' AND p.status = 'ok' AND p.plan IS NOT NULL;

-- What is known of each pair. The first columns name the configuration as the measured run gave it, else as the predicted one did.
DROP VIEW IF EXISTS v_configuration;
CREATE VIEW v_configuration AS
SELECT r.preset, r.schedule, r.stages, r.virtual_stages, r.chunks, r.microbatches, r.replicas * r.expert_parallel AS replicas,
    r.tensor / r.expert_parallel / r.context_parallel AS tensor, r.expert_parallel, r.context_parallel, r.checkpoint, r.workload, r.device, r.threads, r.transport, r.plan_hash AS plan, a.predicted_run, a.measured_run, a.newest, p.cost_source,
    p.ms AS predicted_ms, m.ms AS measured_ms, 100.0 * (p.ms - m.ms) / m.ms AS error_percent,
    m.p5_ms AS measured_p5_ms, m.p95_ms AS measured_p95_ms,
    p.bubble AS predicted_bubble, m.bubble AS measured_bubble, 100.0 * (p.bubble - m.bubble) AS bubble_error_points,
    p.peak_bytes AS predicted_peak_bytes, m.peak_bytes AS measured_peak_bytes,
    p.process_bytes AS predicted_process_bytes, m.process_bytes AS measured_process_bytes,
    m.plain_steps AS steps
FROM v_pair a
    JOIN run r ON r.id = coalesce(a.measured_run, a.predicted_run)
    LEFT JOIN v_result p ON p.id = a.predicted_run
    LEFT JOIN v_result m ON m.id = a.measured_run;

-- The newest figures of the configurations that were both predicted and measured.
DROP VIEW IF EXISTS v_compare;
CREATE VIEW v_compare AS
SELECT * FROM v_configuration WHERE newest AND predicted_ms IS NOT NULL AND measured_ms IS NOT NULL;

-- Predicted and measured time by kind of task, for each row of v_compare.
DROP VIEW IF EXISTS v_kind;
CREATE VIEW v_kind AS
SELECT c.predicted_run, c.measured_run, m.kind, m.per_step, p.mean_us AS predicted_us, m.mean_us AS measured_us,
    100.0 * (p.mean_us - m.mean_us) / m.mean_us AS error_percent, p.ms_per_step AS predicted_ms, m.ms_per_step AS measured_ms
FROM v_pair c
    JOIN v_task_kind m ON m.run = c.measured_run
    JOIN v_task_kind p ON p.run = c.predicted_run AND p.kind = m.kind
WHERE c.newest;
