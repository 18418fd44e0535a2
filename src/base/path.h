// SPDX-License-Identifier: Apache-2.0
// Where files may be: choosing and checking the cache directory, network file systems, whole-file reads.
#ifndef QN_BASE_PATH_H
#define QN_BASE_PATH_H

#include "base/text.h"

// The environment, read here and nowhere else: NULL in a setuid process, when ignored, or for an empty value.
const char *qn_environment(const char *name, bool ignore);

// The variables that the library and the command read, or what they load; README.md says what each is for. NULL at the
// end. tools/check.sh holds them against the sources.
extern const char *const qn_environment_names[];
// The next variable of this process, from *at on, whose name begins with QUERN_ and is none of these; false: there is none.
bool qn_environment_unknown(size_t *at, char *name, size_t bytes);

// The cache directory from $QUERN_CACHE_DIR (a relative one counts from where the process stands at this call),
// $XDG_CACHE_HOME/quern (absolute only), the passwd home's .cache/quern. What is put is absolute.
// Puts nothing when there is none (uid without passwd entry, no home): the caller goes on in memory.
void qn_cache_directory(bool ignore_environment, qn_text *directory);

// Makes the directory and its missing parents (0700 whatever the umask), then checks it: a directory, owned by this
// user, not writable by others, no world-writable ancestor without the sticky bit, no symbolic link as last part.
// UNSAFE_PATH or FILE_ERROR with the path, the fault and the way out.
quern_status qn_directory_prepare(const char *directory);
// The same checks without making anything.
quern_status qn_directory_check(const char *directory);
// A file whose content becomes code, where its directory is safe: this user's or root's, and writable to nobody else.
// OK for a file that does not exist. UNSAFE_PATH, FILE_ERROR.
quern_status qn_file_check(const char *path);
// The same for a file that the caller named to be read only, whoever owns it: nobody but its owner may write to it, and
// no ancestor lets everyone replace it. path is absolute.
quern_status qn_file_check_named(const char *path);

// Puts the path, made absolute by where the process stands now. Puts nothing when that is not known.
void qn_path_absolute(const char *path, qn_text *absolute);

bool qn_is_network_fs(const char *path, const char **kind); // by statfs: nfs, lustre, gpfs, cifs, smb2, fuse, 9p, afs…

// Reads a whole file in place of what content held. FILE_ERROR with the reason.
quern_status qn_file_read(const char *path, qn_text *content);
bool qn_file_exists(const char *path);
bool qn_file_is_database(const char *path); // a regular file that begins as SQLite's do
// "k.db-wal", "k.db.lock", …: the length of the database's name in a name that is kept beside it. 0: no such name.
size_t qn_path_beside_database(const char *path);
bool qn_file_is_beside_database(const char *path); // such a name, of a database that is there

#endif
