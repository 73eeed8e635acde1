from unittest.mock import Mock, patch, MagicMock, call
m = Mock(return_value=3); print(m(1, a=2), m.call_args, m.called); m.assert_called_once_with(1, a=2)
s = Mock(side_effect=[1, ValueError("x")]); print(s())
try: s()
except ValueError as e: print(e)
import math
with patch("math.sqrt", return_value=99): print(math.sqrt(4))
print(math.sqrt(4)); mm = MagicMock(); mm.__len__.return_value = 7; mm.a.b(5); print(len(mm), mm.mock_calls[0] == call.a.b(5))
