/* SHA-256 (FIPS 180-4), for the identity of a profile's content. No secrets:
 * nothing here is constant-time on purpose. */
#ifndef COST_PROFILE_HASH_H
#define COST_PROFILE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct profile_hash {
    uint32_t state[8];
    uint64_t bytes; /* hashed so far */
    unsigned char block[64];
};

void profile_hash_init(struct profile_hash *hash);
void profile_hash_add(struct profile_hash *hash, const void *data, size_t bytes);
void profile_hash_hex(struct profile_hash *hash, char ret_hex[65]); /* ends the hash; 64 digits and a NUL */

#endif
