"""Checkpoints between Shardplan and PyTorch's distributed checkpoint.

    pytorch_checkpoint.py write FOLDER   the files of tests/executor/data/pytorch_checkpoint
    pytorch_checkpoint.py read FOLDER GENERATION
        loads a checkpoint of the state of tests/executor/checkpoint/states.hpp, whole by
        HuggingFaceStorageReader and merged by consolidate_safetensors_files; exit code 1 and one line
        for each tensor that is not as it was saved

Needs torch and safetensors. Written and read with torch 2.15.0 and safetensors 0.8.0.
"""

import os
import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files

STATE = {  # as in tests/executor/checkpoint/states.cpp
    "blocks.0.qkv.weight": (torch.float32, [12, 7]),
    "blocks.0.qkv.weight.exp_avg": (torch.float64, [12, 7]),
    'embedding "of" tokens \u00e4': (torch.bfloat16, [33, 16]),
    "blocks.0.up.bias": (torch.float32, [11]),
    "blocks.0.experts": (torch.float32, [3, 4, 5]),
    "steps": (torch.int64, []),
    "random": (torch.uint8, [9]),
    "counts": (torch.int32, [1, 4]),
    "head.weight": (torch.bfloat16, [710, 1024]),
}
MASK = (1 << 64) - 1


def hash_mix(seed, value):
    x = (seed + 0x9E3779B97F4A7C15 + value) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def expected_bytes(name, dtype, shape, generation):
    """What `fill` writes."""
    count = 1
    for extent in shape:
        count *= extent
    out = bytearray()
    for place in range(count):
        bits = hash_mix(generation, place)
        for byte in name.encode():
            bits = (bits * 31 + byte) & MASK
        out += hash_mix(bits, 0).to_bytes(8, "little")[: dtype.itemsize]
    return bytes(out)


def bytes_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def wrong(state, generation, source):
    names = [name for name, tensor in state.items()
             if bytes_of(tensor) != expected_bytes(name, *STATE[name], generation)]
    for name in names:
        print(f"{source}: {name!r} differs")
    return len(names)


def merge(folder):
    """The tensors that consolidate_safetensors_files takes: it fails on integers."""
    names = [name for name, (dtype, _) in STATE.items() if dtype.is_floating_point]
    with tempfile.TemporaryDirectory() as merged:
        consolidate_safetensors_files(folder, merged, {name: 1 for name in names})
        state = load_file(merged + "/model-00001-of-00001.safetensors")
    if sorted(state) != sorted(names):
        sys.exit(f"consolidate_safetensors_files: {sorted(state)}")
    return state


def read(folder, generation):
    metadata = HuggingFaceStorageReader(folder).read_metadata().state_dict_metadata
    shapes = {name: (m.properties.dtype, list(m.size)) for name, m in metadata.items()}
    if shapes != STATE:
        sys.exit(f"read_metadata: {shapes}")
    state = {name: torch.zeros(shape, dtype=dtype) for name, (dtype, shape) in STATE.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(folder), no_dist=True)
    if wrong({"steps": state["steps"]}, generation + 1, "as it should be, against another state") != 1:
        sys.exit("the comparison sees no difference")
    boxes = sum(len(m.chunks) for m in metadata.values())
    print(f"torch {torch.__version__}: {len(state)} tensors in {boxes} boxes")
    return wrong(state, generation, "load") + wrong(merge(folder), generation, "merged")


def write_rank(rank, ranks, folder):
    """Tensors split by rows, by columns, unevenly and not at all, over two ranks."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29777")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (ranks,))

    def numbers(shape, dtype, start):
        count = 1
        for extent in shape:
            count *= extent
        return (torch.arange(count, dtype=torch.float64) + start).reshape(shape).to(dtype)

    state = {
        "rows": distribute_tensor(numbers([5, 3], torch.float32, 0.5), mesh, [Shard(0)]),
        "columns": distribute_tensor(numbers([3, 6], torch.float64, 100), mesh, [Shard(1)]),
        "everywhere": distribute_tensor(numbers([4], torch.bfloat16, 7), mesh, [Replicate()]),
        "count": distribute_tensor(numbers([2, 2], torch.int64, -2), mesh, [Shard(0)]),
    }
    writer = HuggingFaceStorageWriter(path=folder, save_distributed=True)
    dcp.save(state, storage_writer=writer)
    dist.destroy_process_group()


def main():
    if sys.argv[1] == "write":
        pathlib.Path(sys.argv[2]).mkdir(exist_ok=True)
        torch.multiprocessing.spawn(write_rank, (2, sys.argv[2]), nprocs=2)
        return 0
    return 1 if read(sys.argv[2], int(sys.argv[3])) else 0


if __name__ == "__main__":
    sys.exit(main())
