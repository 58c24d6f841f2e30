#include "cost/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cost/base/err.h"
#include "cost/base/unit.h"

enum { FIRST_BYTES = 64 << 10, SILENCE_MS = 10000, LINKS_MAX = 16 };

static int too_large(const char *name, double bytes, size_t max_bytes, struct err *err)
{
    char size[32], limit[32];
    unit_format_bytes((double)max_bytes, limit, sizeof(limit));
    if (bytes <= (double)max_bytes)
        return err_add(err, "file '%s' is larger than the limit of %s", name, limit);
    return err_add(err, "file '%s' is too large: %s, limit %s", name, unit_format_bytes(bytes, size, sizeof(size)),
                   limit);
}

/* Refuses what cannot be a text file, before anything is read; *ret_guess = expected size. */
static int check_kind(int fd, const char *name, size_t max_bytes, bool is_stdin, size_t *ret_guess, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_add(err, "file '%s' cannot be read: %s", name, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return err_add(err, "'%s' is a directory, not a file", name);
    if (S_ISBLK(st.st_mode))
        return err_add(err, "'%s' is a disk, not a file", name);
    if (S_ISREG(st.st_mode) && !is_stdin && (uintmax_t)st.st_size > max_bytes)
        return too_large(name, (double)st.st_size, max_bytes, err);
    *ret_guess =
        S_ISREG(st.st_mode) && st.st_size > 0 && (uintmax_t)st.st_size <= max_bytes ? (size_t)st.st_size : FIRST_BYTES;
    return 0;
}

/* A pipe or device that says nothing for SILENCE_MS is given up; standard input may take its time. */
static ssize_t read_some(int fd, char *at, size_t room, bool is_stdin)
{
    for (;;) {
        ssize_t n = read(fd, at, room);
        if (n >= 0 || (errno != EINTR && errno != EAGAIN))
            return n;
        if (errno == EAGAIN) {
            struct pollfd ready = {.fd = fd, .events = POLLIN};
            if (poll(&ready, 1, is_stdin ? -1 : SILENCE_MS) == 0) {
                errno = ETIMEDOUT;
                return -1;
            }
        }
    }
}

static int read_all(int fd, const char *name, size_t max_bytes, bool is_stdin, char **ret_text, size_t *ret_length,
                    struct err *err)
{
    size_t capacity = 0, length = 0, guess = FIRST_BYTES;
    char *text = NULL;
    if (check_kind(fd, name, max_bytes, is_stdin, &guess, err) != 0)
        return -1;
    for (;;) {
        if (length == capacity) { /* one byte more than allowed tells a full file from one that goes on */
            capacity = capacity == 0 ? guess + 1 : 2 * capacity;
            capacity = capacity > max_bytes + 1 ? max_bytes + 1 : capacity;
            char *grown = realloc(text, capacity + 1);
            if (grown == NULL) {
                err_add(err, "file '%s' cannot be read: out of memory", name);
                goto fail;
            }
            text = grown;
        }
        ssize_t n = read_some(fd, text + length, capacity - length, is_stdin);
        if (n < 0) {
            err_add(err, "file '%s' cannot be read: %s", name, strerror(errno));
            goto fail;
        }
        if (n == 0)
            break;
        length += (size_t)n;
        if (length > max_bytes) {
            too_large(name, 0, max_bytes, err);
            goto fail;
        }
    }
    text[length] = '\0';
    *ret_text = text;
    *ret_length = length;
    return 0;
fail:
    free(text);
    return -1;
}

int file_read(const char *path, size_t max_bytes, char **ret_text, size_t *ret_length, struct err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    /* non-blocking: a FIFO without a writer is empty, not a wait */
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return err_add(err, "file '%s' cannot be opened: %s", name, strerror(errno));
    char *text = NULL;
    size_t length = 0;
    int result = read_all(fd, name, max_bytes, is_stdin, &text, &length, err);
    if (!is_stdin)
        close(fd);
    if (result != 0)
        return -1;
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        length -= 3;
        memmove(text, text + 3, length + 1);
    }
    if (length == 0) {
        free(text);
        return err_add(err, "file '%s' is empty", name);
    }
    *ret_text = text;
    *ret_length = length;
    return 0;
}

static int write_fd(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = write(fd, text, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        text += n;
        length -= (size_t)n;
    }
    return 0;
}

static int write_stdout(const char *text, size_t length, struct err *err)
{
    if (fwrite(text, 1, length, stdout) != length || fflush(stdout) != 0)
        return err_add(err, "standard output cannot be written: %s", strerror(errno));
    return 0;
}

/* Devices and pipes have no name to rename over. */
static int write_in_place(const char *path, const char *text, size_t length, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return err_add(err, "file '%s' cannot be written: %s", path, strerror(errno));
    int failed = write_fd(fd, text, length) != 0 ? errno : 0;
    if (close(fd) != 0 && failed == 0)
        failed = errno;
    return failed == 0 ? 0 : err_add(err, "file '%s' cannot be written: %s", path, strerror(failed));
}

static size_t directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

/* Where path leads when its symbolic links are followed; the last name need not exist. */
static int follow_links(const char *path, char *target, size_t size)
{
    char link[PATH_MAX];
    if ((size_t)snprintf(target, size, "%s", path) >= size) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (int i = 0; i < LINKS_MAX; i++) {
        ssize_t n = readlink(target, link, sizeof(link) - 1);
        if (n < 0)
            return errno == EINVAL || errno == ENOENT ? 0 : -1;
        link[n] = '\0';
        size_t keep = link[0] == '/' ? 0 : directory_length(target);
        if ((size_t)snprintf(target + keep, size - keep, "%s", link) >= size - keep) {
            errno = ENAMETOOLONG;
            return -1;
        }
    }
    errno = ELOOP;
    return -1;
}

/* Creates the temporary file beside target; its mode is that of a new file, or of the old one. */
static int open_beside(const char *target, char *temporary, size_t size, const struct stat *old)
{
    static int counter;
    for (int i = 0; i < 100; i++) {
        int n = snprintf(temporary, size, "%.*s.plansim-%ld-%d.tmp", (int)directory_length(target), target,
                         (long)getpid(), counter++);
        if (n < 0 || (size_t)n >= size) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd >= 0 && old != NULL && fchmod(fd, old->st_mode & 07777) != 0) {
            int failed = errno;
            close(fd);
            unlink(temporary);
            errno = failed;
            return -1;
        }
        return fd;
    }
    return -1;
}

int file_check_folder(const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    struct stat st;
    int length = slash && slash > path ? (int)(slash - path) : 1;
    char *folder = slash ? strndup(path, (size_t)length) : NULL;
    int result = 0;
    if (slash && !folder)
        result = err_add(err, "out of memory");
    else if (slash && (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode)))
        result = err_add(err, "'%s' cannot be written: there is no folder '%s'", path, folder);
    else if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        result = err_add(err, "'%s' cannot be written: it is a directory", path);
    free(folder);
    return result;
}

int file_check_output(const char *path, const char *option, struct err *err)
{
    if (strcmp(path, "-") == 0)
        return err_add(err, "%s cannot be '-': standard output carries the answer", option);
    return file_check_folder(path, err);
}

int file_write_atomic(const char *path, const char *text, size_t length, struct err *err)
{
    char target[PATH_MAX], temporary[PATH_MAX];
    struct stat st;
    if (strcmp(path, "-") == 0)
        return write_stdout(text, length, err);
    if (follow_links(path, target, sizeof(target)) != 0)
        return err_add(err, "file '%s' cannot be written: %s", path, strerror(errno));
    bool exists = stat(target, &st) == 0;
    if (exists && S_ISDIR(st.st_mode))
        return err_add(err, "'%s' is a directory, not a file", path);
    if (exists && !S_ISREG(st.st_mode))
        return write_in_place(target, text, length, err);
    if (exists && access(target, W_OK) != 0)
        return err_add(err, "file '%s' cannot be written: %s", path, strerror(errno));
    int fd = open_beside(target, temporary, sizeof(temporary), exists ? &st : NULL);
    if (fd < 0)
        return err_add(err, "file '%s' cannot be written: %s", path, strerror(errno));
    int failed = write_fd(fd, text, length) != 0 || fsync(fd) != 0 ? errno : 0;
    if (close(fd) != 0 && failed == 0)
        failed = errno;
    if (failed == 0 && rename(temporary, target) != 0)
        failed = errno;
    if (failed == 0)
        return 0;
    unlink(temporary);
    return err_add(err, "file '%s' cannot be written: %s", path, strerror(failed));
}
