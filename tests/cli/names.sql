-- SPDX-License-Identifier: Apache-2.0
-- Names that would be commands of a shell, of gnuplot, or of a terminal, for ppreport.test.
UPDATE run SET
    preset = 'p{x}^2_a@title&`touch PWN`' || char(27) || '[31m' || char(10) || 'system(''touch PWN'')' || char(9, 92),
    device_text = 'e' || char(27, 155) || CAST(x'ff' AS TEXT),
    workload = '`touch PWN`"' || char(92, 39) || '.system(''touch PWN'').''<b>&amp;#',
    schedule = 'x''.system(''touch PWN'').''`touch PWN`' || char(10) || 'system "touch PWN"' || char(13, 10, 92);
