#include "executor/optimizer/tiered_buffer.hpp"

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "executor/kernels/bf16.hpp"

namespace shardplan::exec {

namespace {

/// A file without a name; where the file system knows none such, one that loses its name at once.
int open_nameless(const std::string& folder) {
#ifdef O_TMPFILE
    const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (file >= 0) return file;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) return -1;
#endif
    std::string path = folder + "/shardplan-offload-XXXXXX";
    const int named = ::mkstemp(path.data());
    if (named >= 0) ::unlink(path.c_str());
    return named;
}

sim::Error disk_error(const std::string& folder, std::int64_t bytes, int code) {
    return {sim::ErrorCode::backend_failed, "offload",
            "no room for " + std::to_string(bytes) + " bytes in " + folder + ": " +
                std::generic_category().message(code),
            "offload to a folder on a disk with room"};
}

} // namespace

sim::Result<MappedFile> MappedFile::make(const std::string& folder, std::int64_t bytes) {
    MappedFile made;
    if (bytes == 0) return made;
    const std::string where = folder.empty() ? "." : folder;
    const int file = open_nameless(where);
    if (file < 0) return disk_error(where, bytes, errno);
    int failed = ::posix_fallocate(file, 0, bytes);
    void* data = MAP_FAILED;
    if (failed == 0) {
        data = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                      file, 0);
        if (data == MAP_FAILED) failed = errno;
    }
    ::close(file); // the mapping keeps it
    if (failed != 0) return disk_error(where, bytes, failed);
    made.data_ = data;
    made.bytes_ = bytes;
    return made;
}

void MappedFile::prefetch() const {
    if (data_ != nullptr) ::madvise(data_, static_cast<std::size_t>(bytes_), MADV_WILLNEED);
}

void MappedFile::give_way() const {
    if (data_ == nullptr) return;
    ::msync(data_, static_cast<std::size_t>(bytes_), MS_ASYNC);
    ::madvise(data_, static_cast<std::size_t>(bytes_), MADV_DONTNEED);
}

void MappedFile::release() {
    if (data_ != nullptr) ::munmap(data_, static_cast<std::size_t>(bytes_));
    data_ = nullptr;
    bytes_ = 0;
}

template <class T>
sim::Result<TieredBuffer<T>> TieredBuffer<T>::make(Index count, const Offload& offload,
                                                   sim::TensorKind kind, MemoryCount& memory) {
    constexpr auto size = static_cast<Index>(sizeof(T));
    const Index off = offload.of(count);
    TieredBuffer made;
    made.count_ = count;
    made.here_.reset(count - off);
    memory.add(kind, (count - off) * size);
    if (off == 0) return made;
    if (offload.tier == sim::Tier::nvme) {
        auto file = MappedFile::make(offload.folder, off * size);
        if (!file) return std::move(file).error();
        made.file_ = std::move(*file);
        made.elsewhere_ = static_cast<T*>(made.file_.data());
    } else {
        made.host_.reset(off);
        made.elsewhere_ = made.host_.data();
    }
    memory.add_off_device(offload.tier, off * size);
    return made;
}

template class TieredBuffer<float>;
template class TieredBuffer<double>;
template class TieredBuffer<Bf16>;

} // namespace shardplan::exec
