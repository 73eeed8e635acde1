def add(a, b):
    """
    >>> add(1, 2)
    3
    >>> add("a", 1)
    Traceback (most recent call last):
    TypeError: can only concatenate str (not "int") to str
    """
    return a + b
import doctest; print(doctest.run_docstring_examples(add, {"add": add}), doctest.testmod().failed)
