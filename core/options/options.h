/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line options from one typed table. From the rows come: parsing (long options, never abbreviated), range and
 * unit checks, --help, man page, shell completion and the run_config rows of the database. A new option is one row and
 * one field of struct pp_config.
 */
#ifndef PP_CORE_OPTIONS_OPTIONS_H
#define PP_CORE_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "core/base/status.h"

enum pp_opt_type {
    PP_OPT_FLAG,     /* bool; no argument */
    PP_OPT_INT,      /* int */
    PP_OPT_SEED,     /* uint64_t */
    PP_OPT_BYTES,    /* int64_t; "80G", "512M", "4096B"; from 1 MiB on also "1048576" */
    PP_OPT_REAL,     /* double */
    PP_OPT_AMOUNT,   /* double; "300e9", and with decimal units "300B" or "300G", "15T", "500M", "10K" */
    PP_OPT_TEXT,     /* const char *, into argv */
    PP_OPT_CHOICE,   /* int: position in `choices` */
    PP_OPT_CHOICES,  /* struct pp_ints: positions in `choices`: "never,always" */
    PP_OPT_INTS,     /* struct pp_ints: "1,2,4" */
    PP_OPT_TEXTS,    /* struct pp_texts: "gpipe,1f1b" */
    PP_OPT_REALS,    /* struct pp_reals: "1.5,2.5" */
};

/* Lists. A value that is given twice is kept once, at its first place. Lists of reals keep all values, since the n-th
 * one belongs to the n-th value of another list. */
enum { PP_LIST_MAX = 64 };
struct pp_ints { int n; int v[PP_LIST_MAX]; };
struct pp_reals { int n; double v[PP_LIST_MAX]; };
/* v: in `store`. A copy of the struct has the texts of the original, which must outlive it. */
struct pp_texts { int n; const char *v[PP_LIST_MAX]; char store[4096]; };
static inline bool pp_ints_have(const struct pp_ints *list, int value)
{
    int i = 0;
    while (i < list->n && list->v[i] != value) i++;
    return i < list->n;
}
/* The largest value of a list of positive numbers; 1 if it is empty. */
static inline int pp_ints_most(const struct pp_ints *list)
{
    int most = 1;
    for (int i = 0; i < list->n; i++)
        if (list->v[i] > most) most = list->v[i];
    return most;
}

/* Which programs take an option. */
enum pp_tool { PP_PPSIM = 1, PP_PPEXEC = 2, PP_PPPROF = 4, PP_PPREPORT = 8, PP_RUNS = 7, PP_ALL_TOOLS = 15 };

struct pp_opt {
    const char *name;     /* without the dashes */
    int type;             /* enum pp_opt_type */
    size_t offset;        /* of the value's field in the options struct */
    unsigned tools;       /* enum pp_tool */
    const char *group;    /* heading in --help */
    const char *arg;      /* "N", "FILE", ...; NULL: made from type or choices */
    const char *def;      /* default, parsed like an argument; NULL: "from the preset" or none, as the help says */
    double min, max;      /* INT, INTS, BYTES, REAL, REALS; both 0 = no limit */
    const char *choices;  /* CHOICE, CHOICES, TEXTS, TEXT: "never|layers|layers:N"; NULL = free */
    const char *help;
    unsigned traits;      /* enum pp_opt_trait */
};

/* Properties of options, so that programs need not name single options. */
enum pp_opt_trait {
    PP_OPT_FIXED = 1,        /* the bits of a run depend on it, so --resume needs the same value. Not for the length of
                              * a run (--epochs), nor for how a step is computed (schedule, stages, transport) */
    PP_OPT_LATER = 2,        /* like FIXED, but older checkpoints do not have it: they were written with the default */
    PP_OPT_TIMED = 4,        /* no meaning with --times alone, which says how long tasks take, and nothing of a model */
    PP_OPT_ALWAYS_TIMED = 8, /* beside TIMED: no meaning with --times and --device delay either */
    PP_OPT_OWN = 16,         /* processes of one run may have different values */
    PP_OPT_PATH = 32,        /* processes may have different values, but either all give the option or none does */
    PP_OPT_CHANGES = 64,     /* fixed, but --resume-changed goes on with another value: no weight has another meaning
                              * with it */
    PP_OPT_TENSORS = 128     /* names or shapes of the model's tensors depend on it */
};

struct pp_program_info {
    unsigned tool;            /* one of enum pp_tool */
    const char *name;         /* "ppsim" */
    const char *summary;      /* one line */
    const char *operands;     /* "[DB]" or "" */
    const char *description;  /* paragraphs for --help and the man page */
    const char *examples;     /* lines "command\tmeaning\n" */
};

/* A command line to read. Everything is borrowed. */
struct pp_options_call {
    const struct pp_opt *rows; /* [n] */
    int n;
    unsigned tool;        /* of enum pp_tool: whose options are taken */
    void *options;        /* what the rows' offsets lie in */
    bool *set;            /* [n] set to true where an option was given, else left as it is */
    const char **operand; /* set to the operand, if there is one; NULL: none is taken */
};
/* Sets the defaults, then what argv says; argv[0] is the program. PP_USAGE, with a message that names the nearest
 * option or choice. */
pp_status pp_options_parse(const struct pp_options_call *call, int argc, char **argv) PP_MUST_CHECK;
/* The same without defaults: what argv does not set stays as it is. */
pp_status pp_options_apply(const struct pp_options_call *call, int argc, char **argv) PP_MUST_CHECK;
/* Sets one option from text as the command line would (presets use it). */
pp_status pp_options_set(const struct pp_opt *row, const char *text, void *options) PP_MUST_CHECK;
/* The value as text that would parse to the same value: in buf, or of a TEXT, which may have any length, the text
 * itself. No other value is longer than PP_OPTION_TEXT. */
enum { PP_OPTION_TEXT = 4608 };
const char *pp_options_text(const struct pp_opt *row, const void *options, char buf[PP_OPTION_TEXT]);
/* The shortest decimal text that reads back as the same double; returns buf. */
enum { PP_REAL_BYTES = 32 };
const char *pp_real_text(double value, char buf[PP_REAL_BYTES]);
/* The program of that name (enum pp_tool); 0 if there is none. */
unsigned pp_tool_named(const char *name);
/* --help, in help2man's form. */
void pp_options_help(const struct pp_opt *rows, int n, const struct pp_program_info *program, FILE *out);
/* What an option that is called `name` in other software is called here; NULL: not known. (other_names.c) */
const char *pp_option_elsewhere(const char *name);
/* Writes to buf the one of `choices` ("a|b|c") that is nearest to `text` by edit distance; NULL if none is near. */
const char *pp_nearest(const char *text, const char *choices, char *buf, size_t size);

#endif
