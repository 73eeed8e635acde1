from typing import *
T = TypeVar("T")
class Stack(Generic[T]):
    def __init__(self) -> None: self.items: list[T] = []
    def push(self, x: T) -> None: self.items.append(x)
    def pop(self) -> Optional[T]: return self.items.pop() if self.items else None
class Movie(TypedDict, total=False): name: str; year: int
class Emp(NamedTuple): name: str; id: int = 3
class P(Protocol):
    def run(self) -> int: ...
@runtime_checkable
class HasLen(Protocol):
    def __len__(self) -> int: ...
s: Stack[int] = Stack(); s.push(1); print(s.pop(), s.pop(), Movie(name="x", year=1), Emp("a"), isinstance([], HasLen))
def f(a: int | None, *b: Literal["x", "y"], **c: Callable[..., int]) -> Union[str, int]: ...
print(get_type_hints(f), get_args(dict[str, list[int]]), get_origin(list[int]), cast(int, "a"), Annotated[int, "m"].__metadata__)
