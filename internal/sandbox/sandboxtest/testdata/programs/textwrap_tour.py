import textwrap
t = "The quick brown fox jumps over the lazy dog and runs away from the very angry bear."
print(textwrap.fill(t, 30)); print(textwrap.shorten(t, 40, placeholder="...")); print(textwrap.indent("a\nb\n\nc", "> "))
print(textwrap.dedent("""\
    one
      two
    three"""))
print(textwrap.wrap(t, 20, initial_indent="* ", subsequent_indent="  ", max_lines=3))
