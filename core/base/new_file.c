/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUFFIX = 32 }; /* room for what a temporary name adds to the path */

/* Replaces a symbolic link by its target, again and again. The last target need not exist: it is where the file goes.
 */
static void follow_links(char *path, size_t size)
{
    enum { MOST_LINKS = 40 }; /* the system's limit */
    char target[PATH_MAX];
    for (int i = 0; i < MOST_LINKS; i++) {
        const ssize_t length = readlink(path, target, sizeof target);
        if (length < 0 || strlen(path) + (size_t)length + 2 > size) return;
        char *slash = *target == '/' ? NULL : strrchr(path, '/'), *name = slash ? slash + 1 : path;
        memcpy(name, target, (size_t)length);
        name[length] = '\0';
    }
}

pp_status pp_new_file_choose(const char *option, const char *path, bool again, struct pp_new_file *out)
{
    struct stat info;
    const bool exists = stat(path, &info) == 0;
    *out = (struct pp_new_file){.permissions = exists ? (int)(info.st_mode & 0777) : -1};
    if (strlen(path) >= sizeof out->path - SUFFIX) return pp_fail(PP_USAGE, "%s: the path is too long", option);
    if (!exists && errno == ELOOP) return pp_fail(PP_IO, "%s: cannot create %s: %s", option, path, strerror(errno));
    if (!exists || !realpath(path, out->path)) follow_links(strcpy(out->path, path), sizeof out->path - SUFFIX);
    if (strlen(out->path) >= sizeof out->path - SUFFIX)
        return pp_fail(PP_USAGE, "%s: the path %s is too long", option, out->path);
    if (exists && S_ISDIR(info.st_mode)) return pp_fail(PP_USAGE, "%s: %s is a folder; name a file", option, path);
    if (exists && !S_ISREG(info.st_mode)) {
        strcpy(out->path, path); /* an open pipe, /dev/fd/N, has no other name */
        return PP_OK;
    }
    int used = snprintf(out->temporary, sizeof out->temporary, "%.*s", PATH_MAX - SUFFIX, out->path);
    if (!again) used += snprintf(out->temporary + used, 24, ".%ld", (long)getpid());
    strcpy(out->temporary + used, PP_NEW_FILE_SUFFIX);
    return PP_OK;
}

int pp_new_file_open(const struct pp_new_file *file)
{
    const bool replaces = file->permissions >= 0;
    const mode_t mode = replaces ? (mode_t)file->permissions : 0666;
    const int fd = open(file->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd >= 0 && replaces) (void)fchmod(fd, mode); /* also what the umask would take away */
    return fd;
}

FILE *pp_new_file_stream(const struct pp_new_file *file)
{
    if (!*file->temporary) return fopen(file->path, "w");
    const int fd = pp_new_file_open(file);
    if (fd < 0) return NULL;
    FILE *out = fdopen(fd, "w");
    if (out) return out;
    const int error = errno;
    close(fd);
    (void)unlink(file->temporary);
    errno = error;
    return NULL;
}

/* Some file systems can not do that to a folder, and some folders can not be read; the content of the file is safe
 * then. */
static int sync_folder(const struct pp_new_file *file)
{
    char folder[PATH_MAX];
    strcpy(folder, file->path);
    const int fd = open(dirname(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return 0;
    const int error = fsync(fd) ? errno : 0;
    close(fd);
    errno = error;
    return error == 0 || error == EINVAL || error == ENOTSUP || error == EROFS ? 0 : -1;
}

int pp_new_file_put(struct pp_new_file *file)
{
    if (!*file->temporary) return 0;
    if (rename(file->temporary, file->path)) return -1;
    file->temporary[0] = '\0';
    return sync_folder(file);
}

const char *pp_write_error(void) { return errno ? strerror(errno) : "not all of it could be written"; }
