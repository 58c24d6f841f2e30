/* The commands of plansim, one per sim/cmd_*.c; main.c only picks one.
 *
 * argv[0..argc) is what follows the command word, as opt_parse takes it. Each
 * command writes its answer to standard output and one line per problem to
 * standard error (`plansim COMMAND: sentence`), and returns an enum exit_code. */
#ifndef SIM_COMMANDS_H
#define SIM_COMMANDS_H

int cmd_model(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_search(int argc, char **argv);
int cmd_predict(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_schedule(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_chart(int argc, char **argv);
int cmd_validate(int argc, char **argv);
int cmd_calibrate(int argc, char **argv);

#endif
