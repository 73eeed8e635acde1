class Animal:
    count = 0
    def __init__(self, name): self.name = name; type(self).count += 1
    def speak(self): return "..."
    def __repr__(self): return f"{type(self).__name__}({self.name!r})"
    @classmethod
    def make(cls, *names): return [cls(n) for n in names]
    @staticmethod
    def kind(): return "animal"
    @property
    def upper(self): return self.name.upper()
    @upper.setter
    def upper(self, v): self.name = v.lower()
class Dog(Animal):
    def speak(self): return "Woof, " + super().speak()
ds = Dog.make("rex", "fido"); ds[0].upper = "MAX"; print(ds, ds[0].speak(), Dog.count, Animal.count, Dog.kind(), Dog.__mro__[1].__name__, isinstance(ds[0], Animal), ds[1].upper)
