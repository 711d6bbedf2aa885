#pragma once

namespace cukiln {

/// Keeps fork() out of our use of SQLite. SQLite forbids carrying an open connection across a fork:
/// its per-process table of locks would claim, in the child, locks that only the parent has. So a
/// fork waits until no operation is running, and every idle connection is closed before it; parent
/// and child open theirs again when they need one.
///
/// Process-wide by nature, like fork itself.
class ForkGate {
 public:
  /// Held by every operation of a store; the same thread may hold several.
  class Pass {
   public:
    Pass() noexcept;
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
  };

  /// What closes its connections before a fork. Register and unregister while holding a Pass.
  class Guarded {
   public:
    Guarded();
    virtual ~Guarded();
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;
    /// No operation is running when this is called.
    virtual void before_fork() noexcept = 0;

   private:
    friend class ForkGate;
    Guarded* previous_ = nullptr;
    Guarded* next_ = nullptr;
  };

 private:
  struct Handlers;
};

}  // namespace cukiln
