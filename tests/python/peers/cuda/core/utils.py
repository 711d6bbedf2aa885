# SPDX-License-Identifier: Apache-2.0
"""The abstract class of cuda.core's program caches."""

import abc


class ProgramCacheResource(abc.ABC):
    @abc.abstractmethod
    def __getitem__(self, key): ...

    @abc.abstractmethod
    def __setitem__(self, key, value): ...

    @abc.abstractmethod
    def __delitem__(self, key): ...

    @abc.abstractmethod
    def __len__(self): ...

    @abc.abstractmethod
    def clear(self): ...

    def get(self, key, default=None):
        try:
            return self[key]
        except KeyError:
            return default

    def update(self, items, /):
        for key, value in items.items() if hasattr(items, "items") else items:
            self[key] = value

    def close(self): ...

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
