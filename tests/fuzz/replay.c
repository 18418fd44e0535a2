// SPDX-License-Identifier: Apache-2.0
// The main program of a fuzz target where there is no libFuzzer: runs every file of the folders and files it is given,
// and of each so many changed copies as --changes says: flipped bits, cut ends, doubled parts, drawn from a fixed seed.
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

enum { MOST_BYTES = 1 << 20 };

static long changes, runs, files;
static uint64_t seed = 1;

static size_t draw(size_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return below ? (size_t)((seed >> 33) % below) : 0;
}

// In a block of just this size, so that a sanitizer sees a read past its end.
static void run_one(const uint8_t *bytes, size_t count)
{
    uint8_t *exact = malloc(count ? count : 1);

    if (!exact) abort();
    memcpy(exact, bytes, count);
    LLVMFuzzerTestOneInput(exact, count);
    free(exact);
    runs++;
}

static size_t change(uint8_t *bytes, size_t count)
{
    static const char words[][8] = {"-1",   "0",  "1e400", "nan",     "\xff\xff\xff\xff",
                                    "[[[[", "\"", "=",     "9999999", "\\u0000"};
    size_t at = draw(count), n = 1 + draw(8);

    switch (draw(6)) {
    case 0:
        if (count) bytes[at] ^= (uint8_t)(1u << draw(8));
        return count;
    case 1:
        if (count) bytes[at] = (uint8_t)draw(256);
        return count;
    case 2:
        return at;
    case 3: { // a word in its place
        const char *word = words[draw(sizeof words / sizeof words[0])];
        size_t length = strnlen(word, sizeof words[0]);
        if (at + length <= count) memcpy(bytes + at, word, length);
        return count;
    }
    case 4: // a part twice
        if (at + n > count) return count;
        memmove(bytes + at + n, bytes + at, count - at);
        return count + n;
    default: // a part left out
        if (at + n > count) return count;
        memmove(bytes + at, bytes + at + n, count - at - n);
        return count - n;
    }
}

static void run_file(const char *path)
{
    static uint8_t bytes[MOST_BYTES], changed[2 * MOST_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);

    if (count < 0) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(2);
    }
    close(fd);
    files++;
    run_one(bytes, (size_t)count);
    for (long i = 0; i < changes; i++) {
        size_t length = (size_t)count;
        memcpy(changed, bytes, length);
        for (size_t n = 1 + draw(4); n > 0; n--) length = change(changed, length);
        run_one(changed, length);
    }
}

static void run_path(const char *path)
{
    struct stat info;
    char file[512];

    if (stat(path, &info) || !S_ISDIR(info.st_mode)) {
        run_file(path);
        return;
    }
    struct dirent **names;
    int count = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.') run_file(file);
        free(names[i]);
    }
    if (count >= 0) free(names);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--changes=", 10))
            changes = strtol(argv[i] + 10, NULL, 10);
        else
            run_path(argv[i]);
    }
    printf("%ld files, %ld inputs\n", files, runs);
    return files ? 0 : 1;
}
