# SPDX-License-Identifier: Apache-2.0
# Memory in use over one step, a panel for each rank. series: predicted, measured or both.
# Labels of three characters at most, for which there is room: 900 or 0.8, and never 1000 or 0.05.
unit = most_bytes >= 0.9 * 2**30 ? 2.0**30 : most_bytes >= 0.9 * 2**20 ? 2.0**20 : 2.0**10
unit_name = unit == 2.0**30 ? 'GiB' : unit == 2.0**20 ? 'MiB' : 'KiB'

across = ranks == 1 ? 1 : ranks <= 8 ? 2 : 4
down = (ranks + across - 1) / across
width = across == 1 ? 1000 : across == 2 ? 1300 : 1600
panel_height = ranks <= 8 ? 240.0 : 180.0
head = 86.0; foot = 48.0
height = int(head + down * panel_height + foot)
column_of(r) = r % across
row_of(r) = r / across
left(r) = (80.0 + column_of(r) * (width - 95.0) / across) / width
right(r) = left(r) + ((width - 95.0) / across - (across > 1 ? 54.0 : 0)) / width
top(r) = 1 - (head + row_of(r) * panel_height + 22.0) / height
bottom(r) = 1 - (head + (row_of(r) + 1) * panel_height - 14.0) / height
has(name) = strstrt(series, name) > 0
of_predicted = "'memory-predicted.dat' index r using 1:($2 / unit) with fillsteps lc rgb pale title 'predicted', "
of_measured = "'memory-measured.dat' index r using 1:($2 / unit) with steps lw 2 lc rgb vermilion title 'measured', "
of_arena = "(arena_bytes[r + 1] > 0 ? arena_bytes[r + 1] / unit : NaN) with lines dt (8, 5) lw 1.5 lc rgb black title 'arena'"
command = 'plot '.(has('predicted') ? of_predicted : '').(has('measured') ? of_measured : '').of_arena

set xrange [0:length_ms]
set yrange [0:most_bytes / unit * 1.08]
set ytics autofreq
pale = 0xA9D8F3
set style fill solid 1 border rgb pale

do for [form in 'png svg'] {
    eval open(form)
    set multiplot
    eval heading
    set key horizontal Left reverse right bottom at screen 0.985, screen 1 - 74.0 / height samplen 2
    do for [r = 0:ranks - 1] {
        set lmargin at screen left(r)
        set rmargin at screen right(r)
        set tmargin at screen top(r)
        set bmargin at screen bottom(r)
        set label 3 sprintf('rank %d', r) at screen left(r), screen top(r) + 10.0 / height left font ',12'
        if (column_of(r) == 0) { set ylabel unit_name } else { unset ylabel }
        last = r + across >= ranks
        set format x (last ? '%g' : '')
        set xlabel (last ? 'ms since the step began' : '')
        eval command
        unset key
        unset label 1
        unset label 2
    }
    unset multiplot
    unset output
    unset label
    set key
}
