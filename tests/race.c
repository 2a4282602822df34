/* What the thread sanitizer must say of OpenMP. Threads that share arrays as OpenMP allows, and add up their
 * sums by `reduction`: nothing. With the argument "race" they add to one sum instead: it must report that. */
#include <stdio.h>
#include <string.h>

enum { N = 1 << 12 };
static int x[N];

static void fill(void)
{
#pragma omp parallel num_threads(4)
    {
#pragma omp for schedule(dynamic)
        for (int i = 0; i < N; i++)
            x[i] = i;
#pragma omp for schedule(static)
        for (int i = 0; i < N; i++)
            x[N - 1 - i] += 1;
    }
}

int main(int count, char **argument)
{
    int sum = 0;
    fill();
    if (count > 1 && !strcmp(argument[1], "race")) {
#pragma omp parallel for num_threads(4)
        for (int i = 0; i < N; i++)
            sum += x[i];
    } else {
#pragma omp parallel for num_threads(4) reduction(+ : sum)
        for (int i = 0; i < N; i++)
            sum += x[i];
    }
    printf("%d\n", sum);
    return 0;
}
