import dis, types
def f(x): return x + 1
names = [i.opname for i in dis.get_instructions(f)]; print("RETURN_VALUE" in names, f.__code__.co_varnames, f.__code__.co_argcount, isinstance(f, types.FunctionType), types.SimpleNamespace(a=1, b=[2]))
