/* Calls and those above them: calls with the same stack as one node of a tree (perfgate.trace.analysis.merged_stacks, which has the
   words for it), and what the nearest call above has (perfgate.trace.analysis.stacks). */

#include <stdint.h>
#include <stdlib.h>

enum { VERSION = 1, NONE = -1, UNKNOWN = -2 };

/* The nodes of a tree, the roots first. `slots` is a hash table of their numbers, each one more than it is, 0 for none. */
typedef struct {
    /* What the caller reads. */
    int64_t count;
    int32_t *parent, *label, *depth;
    int64_t *began;
    uint8_t *kind;
    /* What the loop needs. */
    int64_t room, chain_room;
    uint64_t mask;
    int32_t *slots, *chain;
} call_tree;

int64_t tree_version(void)
{
    return VERSION;
}

void tree_free(call_tree *tree)
{
    if (!tree)
        return;
    free(tree->parent);
    free(tree->label);
    free(tree->depth);
    free(tree->began);
    free(tree->kind);
    free(tree->slots);
    free(tree->chain);
    free(tree);
}

/* Make room for more values in a column; whether there was memory for them. */
#define WIDEN(column, room) ((more = realloc(column, (size_t)(room) * sizeof *(column))) && ((column) = more))

static inline uint64_t slot_of(const call_tree *tree, int32_t parent, int32_t label, uint8_t kind)
{
    uint64_t key = ((uint64_t)(uint32_t)parent << 32 | (uint32_t)label) * UINT64_C(0x9e3779b97f4a7c15) + kind;
    key ^= key >> 32;
    key *= UINT64_C(0xd6e8feb86659fd93);
    return (key ^ key >> 32) & tree->mask;
}

static int tree_widen(call_tree *tree)
{
    int64_t room = tree->room * 2 + 1024;
    uint64_t mask = 1;
    void *more;
    if (room >= INT32_MAX || !WIDEN(tree->parent, room) || !WIDEN(tree->label, room) || !WIDEN(tree->depth, room)
        || !WIDEN(tree->began, room) || !WIDEN(tree->kind, room))
        return 0;
    while (mask < (uint64_t)room * 2)
        mask *= 2;
    int32_t *slots = calloc(mask, sizeof *slots);
    if (!slots)
        return 0;
    free(tree->slots);
    tree->slots = slots;
    tree->mask = mask - 1;
    tree->room = room;
    for (int64_t node = 0; node < tree->count; node++) {
        if (tree->parent[node] < 0)
            continue;
        uint64_t place = slot_of(tree, tree->parent[node], tree->label[node], tree->kind[node]);
        while (slots[place])
            place = (place + 1) & tree->mask;
        slots[place] = (int32_t)node + 1;
    }
    return 1;
}

/* A new node; -1 where memory is short. */
static int32_t node_new(call_tree *tree, int32_t parent, int32_t label, uint8_t kind, int64_t start)
{
    if (tree->count == tree->room && !tree_widen(tree))
        return -1;
    int32_t node = (int32_t)tree->count++;
    tree->parent[node] = parent;
    tree->label[node] = label;
    tree->kind[node] = kind;
    tree->began[node] = start;
    tree->depth[node] = parent < 0 ? 0 : tree->depth[parent] + 1;
    return node;
}

/* The node of a call below a parent; -1 where memory is short. */
static inline int32_t node_below(call_tree *tree, int32_t parent, int32_t label, uint8_t kind, int64_t start)
{
    uint64_t place = slot_of(tree, parent, label, kind);
    for (; tree->slots[place]; place = (place + 1) & tree->mask) {
        int32_t node = tree->slots[place] - 1;
        if (tree->parent[node] == parent && tree->label[node] == label && tree->kind[node] == kind) {
            if (start < tree->began[node])
                tree->began[node] = start;
            return node;
        }
    }
    int widens = tree->count == tree->room;
    int32_t node = node_new(tree, parent, label, kind, start);
    if (node < 0 || widens) {
        /* The place is another in a wider table. */
        if (node < 0)
            return node;
        place = slot_of(tree, parent, label, kind);
        while (tree->slots[place])
            place = (place + 1) & tree->mask;
    }
    tree->slots[place] = node + 1;
    return node;
}

/* A tree of roots alone, which have these tracks for labels; NULL where memory is short. */
call_tree *tree_new(const int32_t *tracks, const uint8_t *kind, int32_t roots)
{
    call_tree *tree = calloc(1, sizeof *tree);
    if (!tree || !tree_widen(tree)) {
        tree_free(tree);
        return NULL;
    }
    for (int32_t root = 0; root < roots; root++)
        if (node_new(tree, -1, tracks[root], kind[root], INT64_MAX) < 0) {
            tree_free(tree);
            return NULL;
        }
    return tree;
}

/* Give each of the `count` calls in `wanted` and all calls above it their nodes: `above` is the next one, -1 below the root of the
   call in `root`. `node` is -1 for a call without one yet. A call deeper than `most_levels` has the node of that above it, and 0 in
   `own`. Returns 0 where memory is short or calls lie in one another; `calls` is how many there are in all. */
int32_t tree_merge(call_tree *tree, const int32_t *wanted, int64_t count, const int32_t *above, const int32_t *root,
                   const int32_t *label, const uint8_t *kind, const int64_t *start, int64_t calls, int32_t most_levels,
                   int32_t *node, uint8_t *own)
{
    for (int64_t at = 0; at < count; at++) {
        int64_t length = 0;
        for (int32_t call = wanted[at]; call >= 0 && node[call] < 0; call = above[call]) {
            if (length == tree->chain_room) {
                int64_t room = tree->chain_room * 2 + 256;
                void *more;
                if (length > calls || !WIDEN(tree->chain, room))
                    return 0;
                tree->chain_room = room;
            }
            tree->chain[length++] = call;
        }
        while (length--) {
            int32_t call = tree->chain[length], parent = above[call] < 0 ? root[call] : node[above[call]];
            if (tree->depth[parent] >= most_levels) {
                node[call] = parent;
                own[call] = 0;
                continue;
            }
            node[call] = node_below(tree, parent, label[call], kind[call], start[call]);
            if (node[call] < 0)
                return 0;
        }
    }
    return 1;
}

/* Replace each UNKNOWN in `found` by what the nearest call above has, NONE where no call above has anything: `above` is the next
   one, -1 for none. */
void nearest_known(const int32_t *above, int64_t count, int32_t *found)
{
    for (int64_t call = 0; call < count; call++) {
        int64_t at = call, steps = 0;
        /* More steps than calls: they lie in one another. */
        while (at >= 0 && found[at] == UNKNOWN && steps++ <= count)
            at = above[at];
        int32_t known = at < 0 || found[at] == UNKNOWN ? NONE : found[at];
        for (at = call; at >= 0 && found[at] == UNKNOWN; at = above[at])
            found[at] = known;
    }
}
