/* Data-parallel training of a linear model: the loop that every framework contains, complete. What it takes care of:
   the weights start equal on all ranks (MPI_Bcast), each rank has its own samples, gradients are set to zero in every
   step, lie on the heap, are floats, may be more than 2^31 - 1 (MPI_Allreduce_c where the library has it, else in
   parts), and are divided by the number of ranks, because MPI_SUM is a sum. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARAMETERS 6
#define SAMPLES 48
#define STEPS 100
#define RATE 0.2f

/* Sum `count` floats over all ranks, in place. */
static void all_reduce(float *data, size_t count)
{
#if MPI_VERSION >= 4
    MPI_Allreduce_c(MPI_IN_PLACE, data, (MPI_Count)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
#else
    for (size_t start = 0; start < count; start += INT_MAX) {
        size_t left = count - start;
        int part = left < INT_MAX ? (int)left : INT_MAX;
        MPI_Allreduce(MPI_IN_PLACE, data + start, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
#endif
}

/* A sample: its inputs, and the target that the weights 1, 2, 3, ... would give. */
static float sample(int number, float *x)
{
    float target = 0;

    for (int i = 0; i < PARAMETERS; i++) {
        x[i] = (float)((number * (37 + 13 * i) + 5 * number * number * (i + 1)) % 19 - 9) / 9;
        target += (float)(i + 1) * x[i];
    }
    return target;
}

/* Add the gradient of the mean squared error over this rank's samples; return their loss. */
static double backward(const float *weights, float *gradients, int me, int ranks)
{
    float x[PARAMETERS];
    double loss = 0;
    int own = SAMPLES / ranks;

    for (int number = me; number < SAMPLES; number += ranks) {
        float error = -sample(number, x);
        for (int i = 0; i < PARAMETERS; i++)
            error += weights[i] * x[i];
        for (int i = 0; i < PARAMETERS; i++)
            gradients[i] += 2 * error * x[i] / (float)own;
        loss += error * error / own;
    }
    return loss;
}

int main(int argc, char **argv)
{
    int me, ranks;
    double loss = 0, mean = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (SAMPLES % ranks != 0) {
        if (me == 0)
            fprintf(stderr, "%d samples do not divide over %d ranks\n", SAMPLES, ranks);
        MPI_Barrier(MPI_COMM_WORLD); /* no rank ends before the sentence is out */
        MPI_Finalize();
        return 1;
    }
    float *weights = calloc(PARAMETERS, sizeof *weights), *gradients = calloc(PARAMETERS, sizeof *gradients);
    if (weights == NULL || gradients == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < PARAMETERS; i++)
        weights[i] = (float)me; /* different on purpose: the broadcast makes them equal */
    MPI_Bcast(weights, PARAMETERS, MPI_FLOAT, 0, MPI_COMM_WORLD);
    for (int step = 0; step < STEPS; step++) {
        memset(gradients, 0, PARAMETERS * sizeof *gradients);
        loss = backward(weights, gradients, me, ranks);
        all_reduce(gradients, PARAMETERS);
        for (int i = 0; i < PARAMETERS; i++)
            weights[i] -= RATE * gradients[i] / (float)ranks;
    }
    MPI_Reduce(&loss, &mean, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    printf("rank %d: weights %.3f %.3f ... %.3f\n", me, weights[0], weights[1], weights[PARAMETERS - 1]);
    if (me == 0)
        printf("mean loss before the last step: %.6f\n", mean / ranks);
    free(weights);
    free(gradients);
    MPI_Finalize();
    return 0;
}
