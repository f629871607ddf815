/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line options from one typed table. From the rows come: parsing (long options, never abbreviated), range and
 * unit checks, --help, man page, shell completion and the run_config rows of the database. A new option is one row and
 * one field of struct pp_config.
 */
#ifndef PP_CORE_OPTIONS_H
#define PP_CORE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "core/status.h"

enum pp_opt_type {
    PP_OPT_FLAG,     /* bool; no argument */
    PP_OPT_INT,      /* int */
    PP_OPT_SEED,     /* uint64_t */
    PP_OPT_BYTES,    /* int64_t; "80G", "512M", "4096B"; from 1 MiB on also "1048576" */
    PP_OPT_REAL,     /* double */
    PP_OPT_TEXT,     /* const char *, into argv */
    PP_OPT_CHOICE,   /* int: position in `choices` */
    PP_OPT_CHOICES,  /* struct pp_ints: positions in `choices`: "never,always" */
    PP_OPT_INTS,     /* struct pp_ints: "1,2,4" */
    PP_OPT_TEXTS,    /* struct pp_texts: "gpipe,1f1b" */
    PP_OPT_REALS,    /* struct pp_reals: "1.5,2.5" */
};

/* Lists. A value that is given twice is there once, at its first place; but reals, which belong to the values of
 * another list by their places, are all there. */
enum { PP_LIST_MAX = 64 };
struct pp_ints { int n; int v[PP_LIST_MAX]; };
struct pp_reals { int n; double v[PP_LIST_MAX]; };
struct pp_texts { int n; const char *v[PP_LIST_MAX]; char store[4096]; };

/* Which programs take an option. */
enum pp_tool { PP_PPSIM = 1, PP_PPEXEC = 2, PP_PPPROF = 4, PP_PPREPORT = 8, PP_RUNS = 7, PP_ALL_TOOLS = 15 };

struct pp_opt {
    const char *name;     /* without the dashes */
    int type;             /* enum pp_opt_type */
    size_t offset;        /* of the field in the options struct */
    unsigned tools;       /* enum pp_tool */
    const char *group;    /* heading in --help */
    const char *arg;      /* "N", "FILE", ...; NULL: made from type or choices */
    const char *def;      /* default, parsed like an argument; NULL: "from the preset" or none, as the help says */
    double min, max;      /* INT, INTS, BYTES, REAL, REALS; both 0 = no limit */
    const char *choices;  /* CHOICE, CHOICES, TEXTS, TEXT: "never|layers|layers:N"; NULL = free */
    const char *help;
    unsigned traits;      /* enum pp_opt_trait */
};

/* What programs have to know of an option to treat all alike. */
enum pp_opt_trait {
    PP_OPT_FIXED = 1,        /* the bits of a run depend on it: a run goes on with the same only. Not how long it is
                              * (--epochs), nor what only says how a step is computed (schedule, stages, transport) */
    PP_OPT_LATER = 2,        /* fixed, but the first checkpoints do not name it: they were written with the default */
    PP_OPT_TIMED = 4,        /* means nothing where all that is known of tasks is how long they take (--times) */
    PP_OPT_ALWAYS_TIMED = 8, /* not even where they are waited for (--device delay) */
    PP_OPT_OWN = 16,         /* processes of one run may differ in it */
    PP_OPT_PATH = 32         /* its value may differ, but either all give it or none */
};

struct pp_program_info {
    unsigned tool;            /* one of enum pp_tool */
    const char *name;         /* "ppsim" */
    const char *summary;      /* one line */
    const char *operands;     /* "[DB]" or "" */
    const char *description;  /* paragraphs for --help and the man page */
    const char *examples;     /* lines "command\tmeaning\n" */
};

/* Parses argv into `options` and marks what was given in set[] (parallel to rows, n of them). Operands end up in
 * operands[] (at most max_operands; more is an error). PP_USAGE with a message that names the nearest option or choice.
 * Defaults are applied first. */
pp_status pp_options_parse(const struct pp_opt *rows, int n, unsigned tool, int argc, char **argv, void *options,
                           bool *set, const char **operands, int max_operands, int *noperands) PP_MUST_CHECK;
/* Sets one option from text as the command line would (presets use it). */
pp_status pp_options_set(const struct pp_opt *row, const char *text, void *options) PP_MUST_CHECK;
/* The value as text that parses back, into 600 bytes or more; texts (paths, lists of them) and lists of reals that are
 * longer are cut. */
const char *pp_options_text(const struct pp_opt *row, const void *options, char *buf, size_t size);
/* The shortest text that reads back as the same number; returns buf. */
enum { PP_REAL_BYTES = 32 };
const char *pp_real_text(double value, char buf[PP_REAL_BYTES]);
/* The program of that name; 0 if there is none. */
unsigned pp_tool_named(const char *name);
/* --help, in help2man's form. */
void pp_options_help(const struct pp_opt *rows, int n, const struct pp_program_info *program, FILE *out);
/* Of `choices` ("a|b|c") the one nearest to `text` by edit distance, NULL if none is near. Into buf. */
const char *pp_nearest(const char *text, const char *choices, char *buf, size_t size);

#endif
