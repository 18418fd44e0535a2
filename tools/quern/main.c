// SPDX-License-Identifier: Apache-2.0
// The command `quern`: finds the subcommand and runs it. Knows nothing else.
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "command.h"

typedef struct subcommand {
    const char *name, *doc;
    int (*run)(int argc, char **argv);
} subcommand;

static const subcommand subcommands[] = {
#define X(name, doc) {#name, doc, command_##name},
    COMMAND_LIST(X)
#undef X
};

static void print_help(void)
{
    printf("quern: GPU kernels made to measure\n\nusage: quern COMMAND [operand | option]...\n\n");
    for (size_t i = 0; i < QN_COUNT(subcommands); i++) printf("  %-8s %s\n", subcommands[i].name, subcommands[i].doc);
    printf("\nA SPEC is one argument: 'softmax_topk V=49152 K=256 in=bf16'.\n"
           "'quern COMMAND --help' or 'quern help COMMAND' says more, 'quern version' prints the version.\n"
           "Exit status: 0 success, 1 failed, 2 usage.\n");
}

static const subcommand *find(const char *name)
{
    for (size_t i = 0; i < QN_COUNT(subcommands); i++)
        if (strcmp(name, subcommands[i].name) == 0) return &subcommands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    qn_nearest nearest;
    qn_nearest_init(&nearest, name, strlen(name));
    for (size_t i = 0; i < QN_COUNT(subcommands); i++) qn_nearest_offer(&nearest, subcommands[i].name);
    qn_nearest_offer(&nearest, "help");
    qn_nearest_offer(&nearest, "version");
    return command_usage("unknown command '%s'%s", name, qn_nearest_hint(&nearest));
}

// -h, --help; --version. Anything else that begins with '-' is no option of the command itself.
static int top_level_option(const char *word)
{
    if (strcmp(word, "--version") == 0) {
        printf("quern %s\n", quern_version());
        return COMMAND_OK;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_help();
        return COMMAND_OK;
    }
    return command_usage("unknown option '%s'", word);
}

// The words that are commands and have no help but the whole's.
static bool is_word_of_main(const char *word)
{
    return !strcmp(word, "help") || !strcmp(word, "version");
}

// "quern help", "quern help warm", "quern version": as the options.
static int help_or_version(int argc, char **argv)
{
    char option[] = "--help";
    bool is_help = strcmp(argv[1], "help") == 0;
    if (argc > (is_help ? 3 : 2)) return command_usage("unexpected operand '%s'", argv[is_help ? 3 : 2]);
    if (!is_help) return top_level_option("--version");
    if (argc == 2 || is_word_of_main(argv[2])) return top_level_option("--help");
    const subcommand *command = find(argv[2]);
    if (!command) return unknown_command(argv[2]);
    char *words[] = {argv[2], option, NULL};
    return command->run(2, words);
}

// Output that could not be written (a full disk, a closed pipe) is a failure whatever the subcommand said.
static int flush_output(int exit_status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return exit_status;
    int failed = command_fail("standard output could not be written");
    return exit_status == COMMAND_OK ? failed : exit_status;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help();
        return flush_output(COMMAND_USAGE);
    }
    if (argv[1][0] == '-') return flush_output(top_level_option(argv[1]));
    if (is_word_of_main(argv[1])) return flush_output(help_or_version(argc, argv));
    const subcommand *command = find(argv[1]);
    if (!command) return flush_output(unknown_command(argv[1]));
    return flush_output(command->run(argc - 1, argv + 1));
}
