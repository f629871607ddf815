# SPDX-License-Identifier: Apache-2.0
# Pictures of analysis/gpu_report.py, which puts `what` and the lines of $data before this.
array kinds[3] = [blue, green, vermilion]
width = 900; height = 480
eval heading
set tmargin at screen 1 - 50.0 / height
set key outside right top Left reverse noenhanced samplen 2
eval open('svg')
if (what eq 'fidelity') {
    set xlabel 'measured ms/batch'
    set ylabel 'predicted is above it by, %'
    set logscale x
    plot 0 lc rgb black title 'no error', 8 dt 2 lc rgb grey title 'goal: 8 %', -8 dt 2 lc rgb grey notitle, \
        for [i = 1:3] $data using 1:($3 == 2**(i-1) ? $2 : NaN) with points pt 5+2*(i-1) ps 0.8 lc rgb kinds[i] \
        title sprintf('%d worker%s', 2**(i-1), i == 1 ? '' : 's'), \
        $data using ($4 == 1 ? $1 : NaN):2 with points pt 6 ps 1.8 lc rgb black title 'shape held out'
}
if (what eq 'speed') {
    set ylabel 'ms/batch'
    set style data histograms
    set style fill solid
    set xtics rotate by -35 noenhanced
    set yrange [0:*]
    plot $data using 2:xtic(1) title 'ppexec' lc rgb blue, '' using 3 title '--batch-w M' lc rgb sky, \
        '' using 4 title '--algorithms' lc rgb green, '' using 5 title 'PyTorch' lc rgb orange, \
        '' using 6 title 'floor' lc rgb grey
}
if (what eq 'learning') {
    set xlabel 'batch'
    set ylabel 'training loss, mean over tokens'
    plot $data using 1:2 with lines lw 2 lc rgb blue notitle
}
