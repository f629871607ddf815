# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Completion for ppsim, ppexec, ppprof and ppreport. Options and choices come from the program's own --help, so they are never out of date.

# Words of --help: "--name" with what follows the equals sign, one a line.
_ppkit_options() {
    "$1" --help 2>/dev/null | sed -nE 's/^  --([a-z0-9-]+)(=([^ ]+))?.*/--\1 \3/p'
}

_ppkit() {
    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} argument
    COMPREPLY=()
    # Bash breaks --name=value into three words.
    if [ "$word" = = ]; then word=''; elif [ "$before" = = ]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi
    argument=$(_ppkit_options "$program" | awk -v name="$before" '$1 == name { print $2 }')
    case $before:$argument in
        --*:*'|'*) mapfile -t COMPREPLY < <(compgen -W "${argument//|/ }" -- "$word") ;;
        --*:?*) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$(_ppkit_options "$program" | cut -d' ' -f1)" -- "$word") ;;
    esac
}

complete -o default -F _ppkit ppsim ppexec ppprof ppreport
