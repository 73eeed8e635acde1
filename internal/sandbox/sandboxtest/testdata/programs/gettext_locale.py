import locale, gettext
print(gettext.gettext("hi"), gettext.ngettext("one", "many", 3), locale.format_string("%.2f", 3.14159), locale.strxfrm("a") < locale.strxfrm("b"))
