# Read after CPython's own Makefile: links its objects with reactor.c.
python-kern.wasm: $(HERE)/reactor.c $(LINK_PYTHON_DEPS)
	$(CC) $(PY_CORE_CFLAGS) -I$(srcdir)/Include/internal -w -ffile-prefix-map=$(HERE)=/kern -c $(HERE)/reactor.c -o reactor.o
	$(CC) -mexec-model=reactor -z stack-size=8388608 -Wl,--stack-first -Wl,--initial-memory=20971520 \
		-Wl,--export=__stack_pointer -Wl,--strip-all -o $@ reactor.o $(LINK_PYTHON_OBJS) $(LIBS) $(MODLIBS) $(SYSLIBS)
