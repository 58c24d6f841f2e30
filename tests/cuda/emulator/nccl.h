/* What exec/comm_nccl.c uses of NCCL, for tests/cuda/nccl_emulated.c. */
#ifndef EMULATOR_NCCL_H
#define EMULATOR_NCCL_H

#include "cuda_runtime_api.h"

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct {
    int maxCTAs;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER {0}
typedef enum { ncclSuccess = 0, ncclInvalidUsage = 5, ncclInProgress = 7 } ncclResult_t;
typedef enum { ncclSum = 0, ncclMax = 2 } ncclRedOp_t;
typedef enum { ncclFloat32 = 7, ncclBfloat16 = 9 } ncclDataType_t;

#endif
