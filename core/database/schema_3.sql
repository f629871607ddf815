-- SPDX-License-Identifier: Apache-2.0
-- From schema version 2 to 3: the simulator asks for kernels by name, many in a row.
CREATE INDEX kernel_time_by_name ON kernel_time (name, load);
