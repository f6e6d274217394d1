# emuchain with MPICH and what draws pictures.
#
#   docker build --tag emuchain .
#   docker run --rm emuchain simulate --network vgg16-cifar --devices 15 --samples 1000
#   docker run --rm --volume "$PWD":/work --user "$(id -u):$(id -g)" --entrypoint mpiexec emuchain \
#       -n 4 emuchain train --samples 640 --out run.h5
#
# Kernels are compiled for the processor that they run on, at their first use; a volume at /cache keeps them.
FROM python:3.12-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN python -m pip install --no-cache-dir "build==1.*" && python -m build --wheel --outdir /wheels

FROM python:3.12-slim-bookworm
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir "$(echo /wheels/*.whl)[mpi-mpich,plot]" \
    && useradd --uid 1000 --create-home emuchain \
    && install --directory --mode 1777 /cache /work
ENV NUMBA_CACHE_DIR=/cache OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 MPLCONFIGDIR=/tmp/matplotlib
USER 1000
WORKDIR /work
ENTRYPOINT ["emuchain"]
CMD ["--help"]
