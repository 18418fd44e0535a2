// SPDX-License-Identifier: Apache-2.0
// What every subcommand of `quern` shares: the list of subcommands, options and their help, messages, exit statuses,
// opening a quern, and the choice of architectures and device. Grammar: quern COMMAND [operand | option]…, options
// anywhere, "--" ends them. Results go to stdout, everything else to stderr as "quern: …". Nothing here exits.
#ifndef QUERN_TOOLS_COMMAND_H
#define QUERN_TOOLS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "cuda/arch.h"
#include "quern/quern.h"

enum { COMMAND_OK = 0, COMMAND_FAILED = 1, COMMAND_USAGE = 2 }; // exit statuses

// The subcommands: name, what `quern --help` says of it. Each is a function command_NAME in its own file, which gets
// argv[0] = NAME and returns an exit status.
#define COMMAND_LIST(X)                                                                                                \
    X(run, "run a spec on .npy files")                                                                                 \
    X(warm, "compile specs into a database; needs no GPU")                                                             \
    X(tune, "find the fastest configurations on this GPU; list, export and import them")                               \
    X(cache, "list, check, merge, prune, seal and mend databases")                                                     \
    X(show, "plan, source, key and resources of a spec's kernels")                                                     \
    X(ops, "the families: fields, sizes, tensors, choices")                                                            \
    X(pack, "numbers to the codes of indexer's key layouts, .npy to .npy")                                             \
    X(unpack, "the opposite")                                                                                          \
    X(doctor, "what was found on this machine, and what to do about the rest")                                         \
    X(bench, "time a family, or the library itself")

#define X(name, doc) int command_##name(int argc, char **argv);
COMMAND_LIST(X)
#undef X

// ---- options

typedef enum command_option_type {
    COMMAND_FLAG,   // target: bool *
    COMMAND_STRING, // target: const char **
    COMMAND_NUMBER, // target: int64_t *, checked against min and max
    COMMAND_REPEAT  // target: command_strings *: may be given more than once
} command_option_type;

enum { COMMAND_MAX_STRINGS = 32 };
typedef struct command_strings {
    const char *item[COMMAND_MAX_STRINGS];
    size_t count;
} command_strings;

typedef struct command_option {
    const char *name;  // "arch": --arch A, --arch=A
    char letter;       // 'j': -j N; 0 = none
    const char *value; // what help calls the value; NULL for a flag
    command_option_type type;
    void *target;
    int64_t min, max; // COMMAND_NUMBER
    const char *doc;  // one line
} command_option;

// Options that mean the same everywhere, for option tables. --help is added by command_parse.
#define COMMAND_OPTION_JSON(target)                                                                                    \
    {                                                                                                                  \
        "json", 0, NULL, COMMAND_FLAG, (target), 0, 0, "print JSON, for scripts"                                       \
    }
#define COMMAND_OPTION_DB(target)                                                                                      \
    {                                                                                                                  \
        "db", 0, "FILE", COMMAND_STRING, (target), 0, 0, "the database (default: the user's cache)"                    \
    }
#define COMMAND_OPTION_ARCH(target)                                                                                    \
    {                                                                                                                  \
        "arch", 0, "A,B", COMMAND_STRING, (target), 0, 0, "architectures (default: every device present)"              \
    }
#define COMMAND_OPTION_VERBOSE(target)                                                                                 \
    {                                                                                                                  \
        "verbose", 'v', NULL, COMMAND_FLAG, (target), 0, 0, "log lines on stderr"                                      \
    }
#define COMMAND_OPTION_END                                                                                             \
    {                                                                                                                  \
        NULL, 0, NULL, COMMAND_FLAG, NULL, 0, 0, NULL                                                                  \
    }

typedef struct command_syntax {
    const char *usage;             // lines of "quern warm SPEC… [options]", without the word usage
    const char *text;              // what it does: a paragraph or two, ending in a newline; may be NULL
    const command_option *options; // ends with COMMAND_OPTION_END
} command_syntax;

// Reads the options; afterwards argv[1 … *argc - 1] are the operands in their order. False: this call is over, with
// *exit_status (0 after --help, which was printed; 2 after a usage error, which was reported).
bool command_parse(const command_syntax *syntax, int *argc, char **argv, int *exit_status);

// ---- messages: one "quern: …" on stderr

int command_fail(const char *format, ...) QN_PRINTF(1, 2);   // returns COMMAND_FAILED
int command_usage(const char *format, ...) QN_PRINTF(1, 2);  // adds where help is; returns COMMAND_USAGE
void command_print(const char *format, ...) QN_PRINTF(1, 2); // on standard output, of words that others wrote
void command_note(const char *format, ...) QN_PRINTF(1, 2);
// Whether a character of a file would steer the terminal that shows it.
bool command_is_control(char c);

// Reports quern_message() of a failed call. Invalid specs, arguments by name and unknown architectures are usage (2),
// the rest is failure (1).
int command_status(quern_status status);
int command_content(quern_status status); // the same of a file's content: no --help has more to say of it

// ---- the library

typedef struct command_settings {
    const char *db; // --db: must be usable, unlike the default database, whose failures are warnings
    bool json;
    bool verbose;
    bool looks;             // nothing is made or changed: --db must exist, the default database is only read
    int compile_threads;    // 0: the library's default
    quern_cancel_fn cancel; // ends compiles; NULL: nothing does
} command_settings;

// Ctrl-C as a request to end: from the first call on SIGINT is only noted, and a second one kills.
void command_catch_interrupt(void);
bool command_interrupted(void);
int command_cancelled(void *user); // the same, as a quern_cancel_fn

// A quern_log_fn: warnings and errors to stderr; with user, a bool that is true, everything.
void command_log(void *user, quern_log_level level, const char *line);

// quern_open with warnings and errors logged to stderr (with verbose, everything), after a look at --db.
quern_status command_open(const command_settings *settings, quern **q);

// Whether the library would use a database there: its folder and the file are this user's, or root's, and nobody else
// may write to them. UNSAFE_PATH, FILE_ERROR; OK where there is no such folder.
quern_status command_check_place(const char *file);
// The user's database, where the library has it too. make: its folder is made. UNSAFE_PATH when there is no such folder.
quern_status command_default_database(bool make, qn_text *file);

// Sizes of all families as options, by name ("rows", "N", …): adds one for each to options, which has room for
// COMMAND_MAX_SIZES more, and returns how many there are then. sizes->item[i].text stays NULL unless it is given.
enum { COMMAND_MAX_SIZES = 32 };
typedef struct command_sizes {
    struct {
        const char *name, *text;
    } item[COMMAND_MAX_SIZES];
    size_t count;
} command_sizes;
size_t command_add_sizes(command_sizes *sizes, const char *value, const char *doc, command_option *options,
                         size_t count);
const char *command_size(const command_sizes *sizes, const char *name); // NULL: not given
// A list "1,8,64": the place after the one that begins at word and has so many bytes; NULL: it was the last. A comma at
// the end has an empty place after it, for the reader to refuse.
const char *command_next_place(const char *word, size_t length);
// A size that is given and that no family of these has is a usage error, which names theirs. COMMAND_OK or the status.
struct qn_family;
int command_check_sizes(const command_sizes *sizes, const struct qn_family *const *families, size_t count);

// "sm_90a,sm_100a" → architectures without repetition; NULL → those of every device present, and without one a usage
// error that lists the known ones. *exit_status is set when it fails.
enum { COMMAND_MAX_ARCHS = 16 };
typedef struct command_archs {
    const qn_arch *item[COMMAND_MAX_ARCHS];
    size_t count;
} command_archs;
bool command_choose_archs(const char *list, command_archs *archs, int *exit_status);

// The architecture that preparing on a device of this compute capability would compile for; NULL: none.
const qn_arch *command_target(int cc);

// ---- progress of work that takes over a second: one line on stderr, rewritten, only on a terminal. Thread-safe.
void command_progress(size_t done, size_t total, const char *what);
void command_progress_clear(void); // takes the line away for a message
void command_progress_end(void);

double command_seconds(void); // a monotonic clock

#endif
