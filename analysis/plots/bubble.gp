# SPDX-License-Identifier: Apache-2.0
# Idle share of each rank's compute, and of all ranks together.
array colours[3] = [black, sky, vermilion]
array meanings[3] = ['', 'predicted', 'measured']
n = words(columns)
column_of(i) = int(word(columns, i))
shift(i) = (i - (n + 1) / 2.0) / (n + 1)

height = 560
width = 520 + 70 * (ranks + 1) * n
if (width < 760) width = 760
if (width > 1800) width = 1800
values = width / ((ranks + 1) * n) >= 50

eval heading
set tmargin at screen 1 - 62.0 / height
set ylabel 'bubble: idle share of the step (%)'
top = 1 # also where nobody waits
do for [i = 1:n] {
    stats 'bubble.dat' using column_of(i) nooutput
    top = STATS_max > top ? STATS_max : top
}
set yrange [0:1.08 * top]
set xrange [-0.6:ranks + 0.6]
set xtics scale 0 ()
every = ranks <= 24 ? 1 : (ranks + 15) / 16
do for [r = 0:ranks - 1:every] { set xtics add (sprintf('rank %d', r) r) }
set xtics add ('all ranks' ranks)
set arrow from ranks - 0.5, graph 0 to ranks - 0.5, graph 1 nohead lc rgb grey dt 3
set style fill solid 0.9 noborder
set boxwidth 0.9 / (n + 1)
set key outside right top Left reverse

do for [form in 'png svg'] {
    eval open(form)
    plot for [i = 1:n] 'bubble.dat' using ($1 + shift(i)):column_of(i) with boxes \
             lc rgb colours[column_of(i)] title meanings[column_of(i)], \
         for [i = 1:(values ? n : 0)] '' using ($1 + shift(i)):column_of(i):(sprintf('%.1f', column(column_of(i)))) \
             with labels offset 0, 0.6 font ',10' notitle
    unset output
}
