# SPDX-License-Identifier: Apache-2.0
# One step, predicted above measured: a row for each rank, a box for each computation with the number of its microbatch,
# thin lines below for what is under way meanwhile. kinds: numbers of the kinds that occur, in the order of kind_names
# and colours[].
array colours[16] = [sky, green, green, orange, purple, blue, vermilion, black, grey, 0x666666, yellow, 0x8C564B, \
    0x332288, 0x999933, 0xAA4499, 0x44AA99]
part(rgb, bits, w) = int((rgb >> bits & 255) * (1 - w) + 255 * w) << bits
lighter(rgb, w) = part(rgb, 16, w) + part(rgb, 8, w) + part(rgb, 0, w)
shade(layer) = virtual_stages > 1 ? 0.55 * layer / (virtual_stages - 1) : 0
colour(kind, layer) = lighter(colours[int(kind)], shade(layer))

kind(k) = int(word(kinds, k))
n = words(panels)
if (virtual_stages > 1) { workload = workload.' (paler: later stages of a rank)' }
row = 46.0
if (n * ranks * row > 1000) row = 1000.0 / (n * ranks)
if (row < 6) row = 6
head = 108.0; gap = 34.0; foot = 62.0
width = pixels
height = int(head + n * ranks * row + (n - 1) * gap + foot)
top(i) = 1 - (head + (i - 1) * (ranks * row + gap)) / height
bottom(i) = top(i) - ranks * row / height
every = ranks <= 16 ? 1 : ranks / 16

set lmargin at screen 0.075
set rmargin at screen 0.985
set border 1 lc rgb 0x555555
unset grid
set grid x lc rgb 0xDDDDDD lt 1
set xrange [0:length_ms]
set yrange [-ranks + 0.46:0.46]
set ytics scale 0 ()
do for [r = 0:ranks - 1:every] { set ytics add (sprintf('rank %d', r) -r) }
# Of narrow boxes white borders would leave little.
eval 'set style fill solid 1 '.(narrow ? 'noborder' : "border rgb 'white'")
set key horizontal maxrows 1 Left reverse right bottom at screen 0.985, screen 1 - 76.0 / height samplen 1 width 1.3 noenhanced \
    font ',10'
label_font = row > 30 ? ',10' : ',8'

do for [form in 'png svg'] {
    eval open(form)
    set multiplot
    eval heading
    do for [i = 1:n] {
        panel = word(panels, i)
        set tmargin at screen top(i)
        set bmargin at screen bottom(i)
        set label 3 panel at screen 0.075, screen top(i) + 12.0 / height left font ',12'
        set format x (i == n ? '%g' : '')
        set xlabel (i == n ? 'ms since the step began' : '')
        plot 'timeline-'.panel.'.dat' using 1:(0):1:2:3:4:(colour($5, $6)) with boxxyerror lw 0.4 lc rgb variable \
                 notitle, \
             '' using (($1 + $2) / 2):(row > 12 && strlen(stringcolumn(7)) ? ($3 + $4) / 2 : NaN):7 with labels \
                 font label_font noenhanced notitle, \
             for [k = 1:(i == 1 ? words(kinds) : 0)] NaN with boxes lc rgb colours[kind(k)] \
                 title word(kind_names, kind(k))
        unset label 1
        unset label 2
        unset key
    }
    unset multiplot
    unset output
    unset label
    set key
}
