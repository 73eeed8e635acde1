import ast
src = "def f(a, b=2):\n    return a * (b + 3)\nx = f(1) if True else [i for i in range(3)]"
t = ast.parse(src)
print([type(n).__name__ for n in ast.walk(t) if isinstance(n, (ast.Call, ast.BinOp, ast.FunctionDef, ast.ListComp))])
class V(ast.NodeTransformer):
    def visit_Constant(s, n): return ast.Constant(n.value * 10) if isinstance(n.value, int) and not isinstance(n.value, bool) else n
print(ast.unparse(V().visit(ast.parse("y = 1 + 2 * x")))); print(ast.literal_eval("{'a': [1, (2, None)]}"))
try: ast.literal_eval("__import__('os')")
except ValueError as e: print("refused")
