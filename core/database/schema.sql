-- SPDX-License-Identifier: Apache-2.0
-- Schema, version 1 (PRAGMA user_version); schema_2.sql makes version 2 of it, and so on. Columns are described in docs/DATABASE.md, formulas in docs/METRICS.md.
-- Times are integer nanoseconds unless a name ends in _ms, sizes are bytes, NULL means "not known".

-- A plan of one workload. Tasks of equal plans are the same, their bytes depend on the workload as well.
CREATE TABLE plan (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL,
    workload TEXT NOT NULL,
    stages INTEGER NOT NULL,
    virtual_stages INTEGER NOT NULL,
    microbatches INTEGER NOT NULL,
    replicas INTEGER NOT NULL,
    tasks INTEGER NOT NULL,
    UNIQUE (hash, workload)
);

CREATE TABLE task (
    plan INTEGER NOT NULL REFERENCES plan (id),
    id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    stage INTEGER,
    microbatch INTEGER,
    count INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    computes INTEGER NOT NULL,
    src INTEGER,
    dst INTEGER,
    taken_bytes INTEGER NOT NULL,
    freed_bytes INTEGER NOT NULL,
    PRIMARY KEY (plan, id)
) WITHOUT ROWID;

CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    tool TEXT NOT NULL,
    version TEXT NOT NULL,
    host TEXT NOT NULL,
    started TEXT NOT NULL,
    ended TEXT,
    status TEXT,
    device TEXT,
    device_text TEXT,
    transport TEXT,
    cost_source TEXT,
    processes INTEGER,
    cores INTEGER,
    threads INTEGER,
    preset TEXT,
    workload TEXT NOT NULL,
    schedule TEXT,
    stages INTEGER,
    virtual_stages INTEGER,
    chunks INTEGER,
    microbatches INTEGER,
    replicas INTEGER,
    checkpoint TEXT,
    parameters INTEGER,
    accumulation_key TEXT,
    plan INTEGER REFERENCES plan (id),
    plan_hash TEXT,
    ms_per_batch REAL,
    makespan_ms REAL,
    span_ms REAL,
    bubble REAL,
    bubble_span REAL,
    lower_bound_ms REAL,
    test_loss REAL,
    trace_overhead REAL,
    reference_ns REAL
);
-- Predictions and measurements of one configuration find each other.
CREATE INDEX run_by_plan ON run (plan_hash, workload);

CREATE TABLE run_config (
    run INTEGER NOT NULL REFERENCES run (id),
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    given INTEGER NOT NULL,
    PRIMARY KEY (run, name)
) WITHOUT ROWID;

-- Clustered by run, so that one run's events are read without touching the others', and appended without a second index.
CREATE TABLE event (
    run INTEGER NOT NULL REFERENCES run (id),
    seq INTEGER NOT NULL,
    step INTEGER NOT NULL,
    worker INTEGER NOT NULL,
    task INTEGER NOT NULL,
    side INTEGER NOT NULL,
    posted_ns INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;

-- What each worker's compute lane did in a traced step, summed from its events when they were written.
CREATE TABLE busy (
    run INTEGER NOT NULL REFERENCES run (id),
    step INTEGER NOT NULL,
    worker INTEGER NOT NULL,
    first_ns INTEGER NOT NULL,
    last_ns INTEGER NOT NULL,
    busy_ns INTEGER NOT NULL,
    recompute_ns INTEGER NOT NULL,
    PRIMARY KEY (run, step, worker)
) WITHOUT ROWID;

CREATE TABLE step (
    run INTEGER NOT NULL REFERENCES run (id),
    step INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    ns INTEGER NOT NULL,
    loss REAL,
    tokens INTEGER NOT NULL,
    traced INTEGER NOT NULL,
    PRIMARY KEY (run, step)
) WITHOUT ROWID;

CREATE TABLE epoch (
    run INTEGER NOT NULL REFERENCES run (id),
    epoch INTEGER NOT NULL,
    valid_loss REAL,
    ns INTEGER NOT NULL,
    PRIMARY KEY (run, epoch)
) WITHOUT ROWID;

CREATE TABLE memory (
    run INTEGER NOT NULL REFERENCES run (id),
    worker INTEGER NOT NULL,
    kind TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (run, worker, kind)
) WITHOUT ROWID;

CREATE TABLE kernel_time (
    run INTEGER NOT NULL REFERENCES run (id),
    name TEXT NOT NULL,
    context TEXT NOT NULL,
    load INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    count INTEGER NOT NULL,
    median_ns INTEGER NOT NULL,
    p5_ns INTEGER NOT NULL,
    p95_ns INTEGER NOT NULL,
    min_ns INTEGER NOT NULL,
    flops REAL,
    moved_bytes REAL
);

CREATE TABLE task_time (
    run INTEGER NOT NULL REFERENCES run (id),
    name TEXT NOT NULL,
    context TEXT NOT NULL,
    load INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    count INTEGER NOT NULL,
    median_ns INTEGER NOT NULL,
    p5_ns INTEGER NOT NULL,
    p95_ns INTEGER NOT NULL,
    min_ns INTEGER NOT NULL,
    flops REAL,
    moved_bytes REAL
);
-- The simulator asks for one signature at a time.
CREATE INDEX task_time_by_name ON task_time (name, load);

CREATE TABLE link_time (
    run INTEGER NOT NULL REFERENCES run (id),
    name TEXT NOT NULL,
    context TEXT NOT NULL,
    load INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    count INTEGER NOT NULL,
    median_ns INTEGER NOT NULL,
    p5_ns INTEGER NOT NULL,
    p95_ns INTEGER NOT NULL,
    min_ns INTEGER NOT NULL,
    flops REAL,
    moved_bytes REAL
);

CREATE TABLE link (
    run INTEGER NOT NULL REFERENCES run (id),
    link TEXT NOT NULL,
    parameter TEXT NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (run, link, parameter)
) WITHOUT ROWID;
