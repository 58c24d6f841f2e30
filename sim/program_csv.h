/* Programs as text: our CSV and the two dialects of PyTorch's pipeline CSV.
 *
 * Ours: `rank,index,op,mb,chunk,stage,dir,mb2,chunk2,stage2,dir2`, one op a line, lines that begin with '#' are
 * comments; op is F, B, W, BW or F&BW. Direction 1 is the second pipeline of a bidirectional schedule.
 * PyTorch's (torch.distributed.pipelining, _dump_csv): one row per rank, cells `<stage><type>[<mb>]` with F, I (our
 * B), W, B (our BW), (7F3;0B1)OVERLAP_F_B; compute_comms adds SEND_F RECV_F SEND_B RECV_B UNSHARD RESHARD REDUCE_GRAD.
 * Shape and placement are inferred from the ops. Every program read is checked (program_check). */
#ifndef SIM_PROGRAM_CSV_H
#define SIM_PROGRAM_CSV_H

#include <stddef.h>

struct arena;
struct err;
struct program;

/* Reads a file ("-" = standard input) of either kind; what it is shows in its first line. */
int program_load(const char *path, struct arena *arena, struct program *ret, struct err *err);
/* The same of text; `file` is for messages. */
int program_parse(const char *text, size_t length, const char *file, struct arena *arena, struct program *ret,
                  struct err *err);

/* malloc'd text, caller frees; NULL when out of memory. program_to_csv leaves out what is not a compute op. */
char *program_to_csv(const struct program *program);
/* PyTorch's: compute_only, or compute_comms where the program spells out sends. Refuses two directions. */
char *program_to_torch_csv(const struct program *program, struct err *err);

#endif
