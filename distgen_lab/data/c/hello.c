/* Every rank says who it is. The lines come in any order. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int me, ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    printf("rank %d of %d\n", me, ranks);
    MPI_Finalize();
    return 0;
}
