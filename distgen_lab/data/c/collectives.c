/* The collectives of the chapter on one number (or one block) a rank: who holds what afterwards. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int me, ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int mine = me + 1, weight = me == 0 ? 7 : 0, sum = 0, total = 0, part = 0, share = 0, last = 0;
    int *all = calloc(ranks, sizeof *all), *table = calloc(ranks, sizeof *table);
    if (all == NULL || table == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < ranks; i++)
        table[i] = 10 * me + i;

    MPI_Bcast(&weight, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD); /* only the root's sum means anything */
    MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); /* a sum: divide it for the mean */
    MPI_Allgather(&mine, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD); /* the second 1 is what comes from each rank */
    for (int i = 0; i < ranks; i++)
        last = all[i];
    MPI_Scatter(table, 1, MPI_INT, &part, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Reduce_scatter_block(table, &share, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);

    printf("rank %d: bcast %d, reduce %d, allreduce %d, allgather ..%d, scatter %d, reduce_scatter %d\n", me, weight,
           me == 0 ? sum : 0, total, last, part, share);
    free(all);
    free(table);
    MPI_Finalize();
    return 0;
}
