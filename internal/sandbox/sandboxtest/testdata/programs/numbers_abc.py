import numbers, sys
for x in (1, 1.0, 1j, True): print(isinstance(x, numbers.Integral), isinstance(x, numbers.Real), isinstance(x, numbers.Number), type(x).__name__)
print(sys.float_info.max, sys.float_info.epsilon, sys.int_info.bits_per_digit > 0, bool(0.0), None is None, ... is Ellipsis, NotImplemented is NotImplemented)
