// expect: conversion from .double. to non-scalar type|no viable conversion
#include "simulator/units/quantity.hpp"

int main() {
    const shardplan::sim::Bytes size(1.0);
#ifdef BAD_LINE
    const shardplan::sim::Bytes bare = 1.0;
#endif
    return size.value() == 1.0 ? 0 : 1;
}
