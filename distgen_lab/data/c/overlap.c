/* A send that is begun, work on something else, and only then the wait. Until MPI_Wait has returned the buffer belongs
   to MPI. Nothing promises that the message moves while the rank computes: MPI_Test now and then lets it. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define ELEMENTS 1000000

static double next_layer(int piece)
{
    double sum = 0;

    for (int i = 0; i < 1000; i++)
        sum += sqrt((double)(piece * 1000 + i));
    return sum;
}

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
    double *buffer = malloc(ELEMENTS * sizeof *buffer);
    if (buffer == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    if (me == 0) {
        MPI_Request request;
        int done = 0;
        double work = 0;

        for (int i = 0; i < ELEMENTS; i++)
            buffer[i] = i;
        MPI_Isend(buffer, ELEMENTS, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD, &request);
        for (int piece = 0; piece < 100; piece++) {
            work += next_layer(piece);
            if (!done)
                MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE); /* returns at once if MPI_Test has seen the end */
        buffer[0] = -1;                        /* now it is ours again */
        printf("rank 0 worked out %.0f meanwhile\n", work);
    } else if (me == 1) {
        MPI_Recv(buffer, ELEMENTS, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("rank 1 got %.0f first and %.0f last\n", buffer[0], buffer[ELEMENTS - 1]);
    }
    free(buffer);
    MPI_Finalize();
    return 0;
}
