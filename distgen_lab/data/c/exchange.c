/* Every rank sends to its right and receives from its left neighbour at once, computes, and waits for both. Between the
   calls and MPI_Waitall it neither writes what it sends nor reads what it receives. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define ELEMENTS 500000

int main(int argc, char **argv)
{
    int me, ranks;
    MPI_Request requests[2];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    double *mine = malloc(ELEMENTS * sizeof *mine), *theirs = malloc(ELEMENTS * sizeof *theirs);
    if (mine == NULL || theirs == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < ELEMENTS; i++)
        mine[i] = me;
    MPI_Irecv(theirs, ELEMENTS, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(mine, ELEMENTS, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, &requests[1]);
    double own = 0;
    for (int i = 0; i < ELEMENTS; i++)
        own += mine[i]; /* reading what is being sent is allowed */
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    double got = 0;
    for (int i = 0; i < ELEMENTS; i++)
        got += theirs[i];
    printf("rank %d: own sum %.0f, sum from rank %d %.0f\n", me, own, left, got);
    free(mine);
    free(theirs);
    MPI_Finalize();
    return 0;
}
