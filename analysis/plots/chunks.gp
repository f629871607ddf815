# SPDX-License-Identifier: Apache-2.0
# ms/batch against chunks. lines[] are the names, `predicted` and `measured` say which line each block of the data is.
array colours[8] = [blue, vermilion, green, orange, purple, sky, black, yellow]
array marks[5] = [7, 5, 9, 11, 13]
array hollow[5] = [6, 4, 8, 10, 12]
# Lines of the same colour have other marks: 40 lines differ.
pick(i) = (i - 1) % 8 + 1
mark(i) = ((i - 1) % 8 + 2 * ((i - 1) / 8)) % 5 + 1
line_of(list, i) = int(word(list, i))

width = 1100
eval heading
set tmargin at screen 1 - 62.0 / height
set xlabel batch_grows ? 'microbatches: each takes as long, so the batch grows with them' : 'chunks of the batch'
set ylabel 'ms / batch'.(words(measured) ? ' (measured: median, bar from p5 to p95)' : '')
set logscale x 2
set key outside right top Left reverse noenhanced spacing 1.3 samplen 3
set bars 0.6

# An empty list would still draw its first element, so the command is put together from what there is.
# Bars of the same number of chunks stand side by side, in 1/12 of the room of a factor of 2.
aside(i) = 2 ** ((i - (words(measured) + 1) / 2.0) / (12.0 * words(measured)))
of_measured = "for [i = 1:words(measured)] name.'-measured.dat' index i-1 using ($1 * aside(i)):2:3:4 with yerrorlines ". \
    "lw 1.5 pt marks[mark(line_of(measured, i))] ps 1.1 lc rgb colours[pick(line_of(measured, i))] ". \
    "title lines[line_of(measured, i)].', measured'"
of_predicted = "for [i = 1:words(predicted)] name.'-predicted.dat' index i-1 using 1:2 with linespoints ". \
    "lw 1.5 dt (6, 5) pt hollow[mark(line_of(predicted, i))] ps 1.8 lc rgb colours[pick(line_of(predicted, i))] ". \
    "title lines[line_of(predicted, i)].', predicted'"
both = words(measured) && words(predicted) ? ', ' : ''
command = 'plot '.(words(measured) ? of_measured : '').both.(words(predicted) ? of_predicted : '')

do for [form in 'png svg'] {
    eval open(form)
    eval command
    unset output
}
