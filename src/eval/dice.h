/* Numbers that depend on nothing but a seed: the same everywhere, for prompts that anyone can make again. */
#ifndef HEED_EVAL_DICE_H
#define HEED_EVAL_DICE_H

#include <stdint.h>

typedef struct heed_dice {
    uint64_t state;
} heed_dice;

/* splitmix64 (Steele, Lea, Flood 2014). */
static inline uint64_t heed_dice_next(heed_dice *dice)
{
    uint64_t z = dice->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* 0 .. sides - 1; sides > 0. What the modulus favours is below 1e-9 for any number of sides used here. */
static inline int64_t heed_dice_throw(heed_dice *dice, int64_t sides)
{
    return (int64_t)(heed_dice_next(dice) % (uint64_t)sides);
}

/* Dice of their own for each of several purposes. */
static inline heed_dice heed_dice_for(uint64_t seed, uint64_t purpose)
{
    heed_dice dice = {seed ^ purpose * 0xd1342543de82ef95u};
    heed_dice_next(&dice);
    return dice;
}

#endif
