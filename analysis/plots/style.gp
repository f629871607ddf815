# SPDX-License-Identifier: Apache-2.0
# What all pictures share. The colours are those of Okabe and Ito, which people with any kind of colour vision tell
# apart.
orange = 0xE69F00; sky = 0x56B4E9; green = 0x009E73; yellow = 0xF0E442
blue = 0x0072B2; vermilion = 0xD55E00; purple = 0xCC79A7; black = 0x000000; grey = 0x999999

set encoding utf8
set datafile missing '?'
set tics nomirror out
set border 3 lc rgb 0x555555
set grid y lc rgb 0xDDDDDD lt 1

width = 1000; height = 620
# A line of text as wide as the picture at most: in smaller letters, and if these were too small to read, cut off. A letter
# is about three quarters of its size wide, in pixels.
smallest = 7.0
fitting(text) = width / (0.76 * strlen(text) + 4)
letters(text, size) = fitting(text) >= size ? size : fitting(text) > smallest ? fitting(text) : smallest
cut(text) = fitting(text) >= smallest ? text : text[1:int(width / (0.76 * smallest)) - 8].' ...'
heading = "set label 1 cut(title) at screen 0.5, screen 1 - 18.0 / height center noenhanced font ". \
    "sprintf(',%.1f', letters(title, 13)); ". \
    "set label 2 cut(workload) at screen 0.5, screen 1 - 40.0 / height center noenhanced textcolor rgb 0x555555 font ". \
    "sprintf(',%.1f', letters(workload, 10))"
png = strstrt(GPVAL_TERMINALS, 'pngcairo') ? 'pngcairo' : 'png'
open(form) = sprintf("set terminal %s size %d,%d font 'sans-serif,11' background rgb 'white'; " . \
    "set output name.'.%s'", form eq 'png' ? png : form, width, height, form)
