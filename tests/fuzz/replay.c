/* Runs a fuzz target over files: every argument is a file or a directory of files. No fuzzer needed. */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int files;

static int run_file(const char *path)
{
    FILE *in = fopen(path, "rb");
    if (!in) {
        perror(path);
        return -1;
    }
    /* Exactly as large as the file: the sanitizer sees every byte that is read behind the end. */
    uint8_t *data = NULL;
    size_t size = 0, room = 0;
    for (int c; (c = getc(in)) != EOF;) {
        if (size == room) {
            room = room ? 2 * room : 4096;
            uint8_t *grown = realloc(data, room);
            if (!grown)
                abort();
            data = grown;
        }
        data[size++] = (uint8_t)c;
    }
    fclose(in);
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact)
        abort();
    if (size)
        memcpy(exact, data, size);
    free(data);
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    files++;
    return 0;
}

static int run_directory(const char *path)
{
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort), result = 0;
    if (n < 0) {
        perror(path);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        char name[4096];
        snprintf(name, sizeof(name), "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && run_file(name) < 0)
            result = -1;
        free(entries[i]);
    }
    free(entries);
    return result;
}

int main(int argc, char **argv)
{
    int result = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode))
            result |= run_directory(argv[i]);
        else
            result |= run_file(argv[i]);
    }
    printf("%d files\n", files);
    return result == 0 && files > 0 ? 0 : 1;
}
