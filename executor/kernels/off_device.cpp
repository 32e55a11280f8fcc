#include "executor/kernels/off_device.hpp"

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

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

sim::Tier tier_of(sim::OffloadTier tier) {
    switch (tier) {
        case sim::OffloadTier::host:
            return sim::Tier::host;
        case sim::OffloadTier::nvme:
            return sim::Tier::nvme;
        case sim::OffloadTier::none:
            break;
    }
    return sim::Tier::device;
}

void Away::release() {
    if (store_ != nullptr) store_->give(*this);
    store_ = nullptr;
    bytes_ = 0;
}

sim::Result<Away> OffDevice::take(Index bytes) {
    Away away;
    if (offload_.tier == sim::Tier::nvme) {
        std::vector<MappedFile>& kept = files_[bytes];
        if (kept.empty()) {
            auto file = MappedFile::make(offload_.folder, bytes);
            if (!file) return std::move(file).error();
            kept.push_back(std::move(*file));
        }
        away.file_ = std::move(kept.back());
        kept.pop_back();
    } else {
        std::vector<Buffer<std::byte>>& kept = host_[bytes];
        if (kept.empty()) kept.emplace_back(bytes);
        away.host_ = std::move(kept.back());
        kept.pop_back();
    }
    away.store_ = this;
    away.bytes_ = bytes;
    count_->add_off_device(offload_.tier, bytes);
    return away;
}

void OffDevice::give(Away& away) {
    count_->add_off_device(offload_.tier, -away.bytes_);
    if (away.file_.data() != nullptr) {
        files_[away.bytes_].push_back(std::move(away.file_));
    } else {
        host_[away.bytes_].push_back(std::move(away.host_));
    }
}

} // namespace shardplan::exec
