/* Rank 0 hands its weights to rank 1; all other ranks have nothing to do. The weights lie on the heap: a model is too
   large for the stack. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define ELEMENTS 1000000

int main(int argc, char **argv)
{
    int me, ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2) {
        fprintf(stderr, "two ranks are needed\n");
        MPI_Finalize();
        return 1;
    }
    float *weights = malloc(ELEMENTS * sizeof *weights);
    if (weights == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    if (me == 0) {
        for (int i = 0; i < ELEMENTS; i++)
            weights[i] = (float)(i % 1000);
        MPI_Send(weights, ELEMENTS, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
    } else if (me == 1) {
        MPI_Status status;
        int count;
        double sum = 0;

        MPI_Recv(weights, ELEMENTS, MPI_FLOAT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_FLOAT, &count);
        for (int i = 0; i < count; i++)
            sum += weights[i];
        printf("rank 1 got %d weights from rank %d with tag %d, sum %.0f\n", count, status.MPI_SOURCE, status.MPI_TAG,
               sum);
    }
    free(weights);
    MPI_Finalize();
    return 0;
}
