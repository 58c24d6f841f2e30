/* Files: everything that is not a sound text file of reasonable size is refused in one sentence. */
#include "cost/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cost/base/err.h"
#include "tests/unit/test.h"

static char directory[TEST_PATH_MAX / 2];

static const char *path_of(const char *name)
{
    static char path[TEST_PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

static void put(const char *name, const char *text, size_t length)
{
    FILE *file = fopen(path_of(name), "wb");
    CHECK(file != NULL && fwrite(text, 1, length, file) == length && fclose(file) == 0);
}

/* Reads; on success compares, on failure looks for `part` in the one sentence. */
static void expect(const char *path, size_t max_bytes, const char *text, const char *part)
{
    struct err err = {0};
    char *got = NULL;
    size_t length = 0;
    int result = file_read(path, max_bytes, &got, &length, &err);
    CHECK_INT(result, text != NULL ? 0 : -1);
    if (result == 0) {
        CHECK_STR(got, text);
        CHECK_INT(length, text != NULL ? strlen(text) : 0);
    } else {
        CHECK_INT(err.count, 1);
        CHECK_CONTAINS(err.text, part);
    }
    free(got);
}

static void test_read(void)
{
    put("good", "{}\n", 3);
    expect(path_of("good"), 100, "{}\n", "");
    expect(path_of("good"), 3, "{}\n", "");
    expect(path_of("good"), 2, NULL, "is too large: 3 B, limit 2 B");
    put("bom", "\xEF\xBB\xBF{}", 5);
    expect(path_of("bom"), 100, "{}", "");
    put("only_bom", "\xEF\xBB\xBF", 3);
    expect(path_of("only_bom"), 100, NULL, "is empty");
    put("empty", "", 0);
    expect(path_of("empty"), 100, NULL, "is empty");
    expect(path_of("missing"), 100, NULL, "cannot be opened: No such file");
    expect(directory, 100, NULL, "is a directory, not a file");
    expect("/dev/null", 100, NULL, "is empty");
    expect("/dev/zero", 1000000, NULL, "is larger than the limit");
    if (access("/proc/self/status", R_OK) == 0) { /* size 0, and yet not empty */
        char *text = NULL;
        size_t length = 0;
        CHECK_INT(file_read("/proc/self/status", 1 << 20, &text, &length, NULL), 0);
        CHECK(length > 100);
        free(text);
    }
}

static void test_unreadable(void)
{
    put("secret", "x", 1);
    chmod(path_of("secret"), 0);
    if (access(path_of("secret"), R_OK) == 0)
        test_skip("unreadable file (running as root)");
    else
        expect(path_of("secret"), 100, NULL, "cannot be opened: Permission denied");
}

/* 1 GB of garbage without the gigabyte. */
static void test_sparse(void)
{
    const char *path = path_of("sparse");
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    bool made = fd >= 0 && ftruncate(fd, (off_t)1 << 30) == 0;
    if (fd >= 0)
        close(fd);
    if (made)
        expect(path, FILE_MAX_BYTES, NULL, "is too large: 1 GiB, limit 64 MiB");
    else
        test_skip("sparse file of 1 GiB");
}

static void test_fifo(void)
{
    const char *path = path_of("fifo");
    if (mkfifo(path, 0600) != 0) {
        test_skip("FIFO");
        return;
    }
    expect(path, 100, NULL, "is empty"); /* nobody writes: no wait */
    int fd = open(path, O_RDWR | O_NONBLOCK);
    CHECK(fd >= 0 && write(fd, "[1]", 3) == 3);
    int reader = open(path, O_RDONLY | O_NONBLOCK); /* keeps the bytes when the writer closes */
    close(fd);
    expect(path, 100, "[1]", "");
    close(reader);
}

static void test_stdin(void)
{
    int saved = dup(STDIN_FILENO), fd = open(path_of("good"), O_RDONLY);
    CHECK(dup2(fd, STDIN_FILENO) == STDIN_FILENO);
    expect("-", 100, "{}\n", "");
    expect("-", 100, NULL, "file 'standard input' is empty");
    lseek(STDIN_FILENO, 0, SEEK_SET);
    expect("-", 2, NULL, "is larger than the limit of 2 B");
    dup2(saved, STDIN_FILENO);
    close(saved);
    close(fd);
}

static mode_t mode_of(const char *name)
{
    struct stat st;
    return stat(path_of(name), &st) == 0 ? st.st_mode & 07777 : 0;
}

static int count_entries(void)
{
    char command[TEST_PATH_MAX], line[32] = "";
    snprintf(command, sizeof(command), "ls -A '%s' | wc -l", directory);
    FILE *pipe = popen(command, "r");
    if (pipe == NULL || fgets(line, sizeof(line), pipe) == NULL)
        line[0] = '\0';
    if (pipe != NULL)
        pclose(pipe);
    return atoi(line);
}

static void test_write(void)
{
    struct err err = {0};
    int before = count_entries();
    CHECK_INT(file_write_atomic(path_of("out"), "one", 3, &err), 0);
    expect(path_of("out"), 100, "one", "");
    mode_t mask = umask(0);
    umask(mask);
    CHECK_INT(mode_of("out"), 0666 & ~mask);
    chmod(path_of("out"), 0640);
    CHECK_INT(file_write_atomic(path_of("out"), "two", 3, &err), 0);
    expect(path_of("out"), 100, "two", "");
    CHECK_INT(mode_of("out"), 0640);
    CHECK(symlink("out", path_of("link")) == 0);
    CHECK_INT(file_write_atomic(path_of("link"), "three", 5, &err), 0);
    expect(path_of("out"), 100, "three", "");
    struct stat st;
    CHECK(lstat(path_of("link"), &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(symlink("fresh", path_of("dangling")) == 0);
    CHECK_INT(file_write_atomic(path_of("dangling"), "four", 4, &err), 0);
    expect(path_of("fresh"), 100, "four", "");
    CHECK_INT(file_write_atomic("/dev/null", "x", 1, &err), 0);
    CHECK_INT(err.count, 0);
    CHECK_INT(file_write_atomic(directory, "x", 1, &err), -1);
    CHECK_CONTAINS(err.text, "is a directory");
    err_clear(&err);
    CHECK_INT(file_write_atomic(path_of("no/such/place"), "x", 1, &err), -1);
    CHECK_CONTAINS(err.text, "cannot be written: No such file or directory");
    CHECK(symlink("loop", path_of("loop")) == 0);
    CHECK_INT(file_write_atomic(path_of("loop"), "x", 1, NULL), -1);
    CHECK_INT(count_entries(), before + 5); /* out, link, dangling, fresh, loop: no temporary file is left */
}

/* Where an output can lie: said before long work. */
static void test_outputs(void)
{
    struct err err = {0};
    char path[TEST_PATH_MAX];
    CHECK_INT(file_check_folder("-", &err), 0);
    CHECK_INT(file_check_folder(path_of("new.json"), &err), 0);
    CHECK_INT(file_check_output(path_of("new.json"), "--out", &err), 0);
    CHECK_STR(err.text, "");
    CHECK_INT(file_check_folder(directory, &err), -1);
    CHECK_CONTAINS(err.text, "it is a directory");
    err_clear(&err);
    snprintf(path, sizeof path, "%s/none/x.json", directory);
    CHECK_INT(file_check_folder(path, &err), -1);
    CHECK_CONTAINS(err.text, "there is no folder");
    err_clear(&err);
    CHECK_INT(file_check_output("-", "--trace", &err), -1);
    CHECK_CONTAINS(err.text, "--trace cannot be '-'");
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    char command[TEST_PATH_MAX];
    snprintf(directory, sizeof(directory), "%s/plansim-test-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (!CHECK(mkdtemp(directory) != NULL))
        return test_report();
    test_read();
    test_unreadable();
    test_sparse();
    test_fifo();
    test_stdin();
    test_write();
    test_outputs();
    snprintf(command, sizeof(command), "rm -rf '%s'", directory);
    CHECK_INT(system(command), 0);
    return test_report();
}
